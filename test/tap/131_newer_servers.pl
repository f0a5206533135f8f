# Facts that newer servers show about the extension, where the server has them.
use Idem;
use Sweeping;

my ($version) = slurp_file("$FindBin::RealBin/../../META.json") =~ /^    "version": "([^"]+)"/m;
my $node = sweeping_node('main');
my $pid = launcher($node);

# From 17 on an extension can name its wait events.
my $name = $node->pg_version >= 17 ? 'IdempotencyLauncher' : 'Extension';
ok( $node->poll_query_until('postgres',
		"SELECT wait_event = '$name' FROM pg_stat_activity WHERE pid = $pid"),
	"the launcher waits for $name");

# From 18 on a library reports its name and version.
SKIP:
{
	skip 'the server cannot tell', 1 if $node->pg_version < 18;
	is( $node->safe_psql('postgres', q{SELECT module_name, version FROM pg_get_loaded_modules()
			WHERE module_name = 'idempotency'}),
		"idempotency|$version", 'the library tells its version');
}

$node->stop;
done_testing();
