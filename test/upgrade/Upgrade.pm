# Helper of the tests of pg_upgrade: servers of the older version, whose programs are in OLD_BINDIR,
# and their upgrade to the newer one.
package Upgrade;

use strict;
use warnings FATAL => 'all';

use Exporter qw(import);
use File::Basename qw(dirname);
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;

our @EXPORT = qw(older_node newer_node init pg_upgrade servers_fit);

# older_node('name', setting => value, ...), newer_node('name', ...): empty and stopped.
sub older_node
{
	my ($name, %conf) = @_;

	return init(PostgreSQL::Test::Cluster->new($name, install_path => dirname($ENV{OLD_BINDIR})), %conf);
}

sub newer_node
{
	my ($name, %conf) = @_;

	return init(PostgreSQL::Test::Cluster->new($name), %conf);
}

# Without defaults of newer servers that older ones lack.
sub init
{
	my ($node, %conf) = @_;
	my @without = $node->pg_version >= 18 ? ('--no-data-checksums') : ();

	$node->init(extra => [ '--encoding=UTF8', '--locale=C', @without ]);
	$node->append_conf('postgresql.conf', "$_ = '$conf{$_}'") foreach sort keys %conf;
	return $node;
}

# Both servers are stopped; the new one is empty. Returns whether pg_upgrade succeeds.
sub pg_upgrade
{
	my ($from, $to) = @_;

	# It leaves files in its current folder.
	chdir PostgreSQL::Test::Utils::tempdir() or die "cannot change folder: $!";
	local %ENV = $to->_get_env;
	return run_log([
		'pg_upgrade', '--no-sync',
		'--old-bindir' => $ENV{OLD_BINDIR}, '--new-bindir' => $to->config_data('--bindir'),
		'--old-datadir' => $from->data_dir, '--new-datadir' => $to->data_dir,
		'--old-port' => $from->port, '--new-port' => $to->port,
		'--socketdir' => $to->host
	]);
}

# Two minor releases may be incompatible with any database: the old one can be newer than the new
# one.
sub servers_fit
{
	my ($from, $to) = (older_node('plain_old'), newer_node('plain_new'));

	$from->start;
	$from->safe_psql('postgres', 'CREATE TABLE plain (key text PRIMARY KEY, body bytea)');
	$from->stop;
	return pg_upgrade($from, $to);
}

1;
