# Helper of the tests of docs/scaling/move_database: two servers, and the database "acme" on the first.
package Moving;

use Exporter qw(import);
use File::Basename qw(dirname);
use IPC::Run ();
use Idem;

our @EXPORT = qw(two_servers mover mover_of move names_on);

my $script = dirname(__FILE__) . '/../../docs/scaling/move_database';

# Both sweep every second.
sub two_servers (%conf)
{
	my @servers = map {
		new_node($_,
			-extension => 0,
			shared_preload_libraries => 'idempotency',
			max_prepared_transactions => 5,
			'idempotency.cleanup_interval' => '1s',
			%conf)
	} qw(old new);
	add_database($servers[0], 'acme', 'public');
	$servers[0]->safe_psql('acme',
		'CREATE TABLE payment (id uuid DEFAULT gen_random_uuid(), key text, amount integer)');
	return @servers;
}

# The command that moves a database.
sub mover_of ($database, $old, $new, @steps)
{
	return ('sh', $script, $database, $old->connstr, $new->connstr, @steps);
}

sub mover
{
	return mover_of('acme', @_);
}

# move($old, $new, 'close', 'copy', ...): its exit status and what it prints.
sub move ($old, $new, @steps)
{
	my $output = '';
	IPC::Run::run([ mover($old, $new, @steps) ], '>&', \$output);
	return ($? >> 8, $output);
}

# names_on($node): the databases of "acme", in order.
sub names_on ($node)
{
	return $node->safe_psql('postgres',
		q{SELECT coalesce(string_agg(datname, ' ' ORDER BY datname), 'none') FROM pg_database WHERE datname LIKE 'acme%'});
}

1;
