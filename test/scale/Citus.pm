# Helper of the tests of a Citus cluster, in addition to Idem.pm.
package Citus;

use strict;
use warnings FATAL => 'all';

use Exporter qw(import);
use FindBin;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils ();

our @EXPORT = qw(new_cluster new_worker join_cluster add_cluster_database distribute principal_on place_of move_shard
  try_sql on_each waiting seen);

# The nodes of this test's cluster, the coordinator first; and the settings of this test.
my @nodes;
my %settings;

# new_cluster(setting => value, ...): a coordinator and two workers that know each other, with the
# extension on all of them, and a table of payments distributed by its tenant. One name is no
# setting: -first, code that runs on the coordinator before it has Citus, CREATE EXTENSION included.
sub new_cluster
{
	%settings = @_;
	my $first = delete $settings{-first};
	my $coordinator = start_node('coordinator', $first);
	@nodes = ($coordinator);
	$coordinator->safe_psql('postgres',
		'SELECT citus_set_coordinator_host(' . address($coordinator) . ')');
	join_cluster(new_worker("worker$_")) foreach 1, 2;
	$coordinator->safe_psql('postgres', q{
		CREATE EXTENSION IF NOT EXISTS idempotency;
		CREATE TABLE payment (tenant text, id text, amount integer, PRIMARY KEY (tenant, id));
		SELECT create_distributed_table('payment', 'tenant', shard_count => 4)});
	return @nodes;
}

# A server with Citus, of no cluster yet.
sub new_worker { return start_node(@_); }

sub join_cluster
{
	my ($node) = @_;

	$nodes[0]->safe_psql('postgres', 'SELECT citus_add_node(' . address($node) . ')');
	push @nodes, $node;
	return;
}

# A new database with the extension on all nodes, as new_cluster() leaves the first one, and no table.
sub add_cluster_database
{
	my ($name) = @_;

	foreach my $node (@nodes)
	{
		$node->safe_psql('postgres', "SET citus.enable_create_database_propagation = off; CREATE DATABASE $name");
		$node->safe_psql($name, 'CREATE EXTENSION citus');
	}
	my ($coordinator, @workers) = @nodes;
	$coordinator->safe_psql($name, join(';',
			'SELECT citus_set_coordinator_host(' . address($coordinator) . ')',
			(map { 'SELECT citus_add_node(' . address($_) . ')' } @workers),
			'CREATE EXTENSION idempotency'));
	return;
}

sub start_node
{
	my ($name, $first) = @_;

	my $node = PostgreSQL::Test::Cluster->new($name);
	$node->init(extra => [ '--encoding=UTF8', '--locale=C', '--no-sync' ]);
	$node->append_conf('postgresql.conf', PostgreSQL::Test::Utils::slurp_file("$FindBin::RealBin/node.conf"));
	# The value that the server's own module sets for tests of replication is too small here.
	$node->append_conf('postgresql.conf', "max_connections = 200\nidempotency.cleanup_interval = 0");
	# Every test runs with each store.
	$node->append_conf('postgresql.conf', 'idempotency.store = ' . ($ENV{IDEM_STORE} // 'auto'));
	$node->append_conf('postgresql.conf', "citus.local_hostname = '" . $node->host . "'");
	$node->append_conf('postgresql.conf', "$_ = '$settings{$_}'") foreach sort keys %settings;
	$node->start;
	$first->($node) if $first;
	$node->safe_psql('postgres', 'CREATE EXTENSION citus');
	return $node;
}

# The folder of the socket and the port, as arguments of Citus's functions.
sub address
{
	my ($node) = @_;

	return "'" . $node->host . "', " . $node->port;
}

# The records, colocated with the payments.
sub distribute
{
	$nodes[0]->safe_psql('postgres', "SELECT idem_distribute('payment')");
	return;
}

# principal_on($worker, $number): the name of a tenant whose shard is there. Different numbers give
# different names.
sub principal_on
{
	my ($node, $number) = @_;

	my ($host, $port) = ($node->host, $node->port);
	return $nodes[0]->safe_psql('postgres', qq{
		SELECT name FROM (SELECT 'tenant ' || i AS name FROM generate_series(1, 100) i) AS names
		 WHERE get_shard_id_for_distribution_column('payment', name) IN
		       (SELECT shardid FROM citus_shards WHERE table_name = 'payment'::regclass
		           AND nodename = '$host' AND nodeport = $port)
		 ORDER BY name OFFSET } . ($number // 1) . ' - 1 LIMIT 1');
}

# The shard of a tenant's payments, and the port of the node that has it.
sub place_of
{
	my ($tenant) = @_;

	return split /\|/, $nodes[0]->safe_psql('postgres', qq{
		SELECT shardid, nodeport FROM citus_shards
		 WHERE shardid = get_shard_id_for_distribution_column('payment', '$tenant')});
}

# move_shard($tenant, $node, $mode): SQL that moves the shard of a tenant, with all that is colocated, to a
# node.
sub move_shard
{
	my ($tenant, $node, $mode) = @_;

	my ($shard, $port) = place_of($tenant);
	my ($from) = grep { $_->port == $port } @nodes;
	return "SELECT citus_move_shard_placement($shard, "
	  . address($from) . ', '
	  . address($node)
	  . ", '$mode')";
}

# try_sql($node, $sql, option => value, ...): psql's output; of an error, the SQLSTATE alone. The
# option dbname, the database, is not one of psql().
sub try_sql
{
	my ($node, $sql, %options) = @_;
	my $database = delete $options{dbname} // 'postgres';

	my ($status, $out, $err) = $node->psql(
		$database, "\\set VERBOSITY sqlstate\n$sql",
		on_error_stop => 1,
		%options);
	return $err =~ /(?:ERROR|FATAL):  (\w{5})$/m ? $1 : $out;
}

# on_each($sql): the answer of each node, the coordinator first.
sub on_each
{
	my ($sql) = @_;

	return map { $_->safe_psql('postgres', $sql) } @nodes;
}

# How many backends, on all nodes, wait for a lock with which Citus keeps shards in place.
sub waiting
{
	my $count = 0;
	$count += $_
	  foreach on_each(q{SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND objsubid = 8 AND NOT granted});
	return $count;
}

# seen($key, $tenant, $payee): how many payments to the payee have the key's name, and the content
# of its record; once, if all nodes see the same.
sub seen
{
	my ($key, $tenant, $payee) = @_;

	my %seen = map {
		s/\n/ /r => 1
	  } on_each(qq{
		SELECT count(*) FROM payment WHERE tenant = '$payee' AND id = '$key';
		SELECT coalesce((SELECT status FROM idem_get('$key', principal => '$tenant')), 'absent')});
	return join(', ', sort keys %seen);
}

1;
