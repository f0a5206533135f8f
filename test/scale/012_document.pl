# The SQL of docs/scaling.md, on a cluster as it describes one.
#
# In the document,
#   <!-- cluster -->          before a ```sql block: it runs on the coordinator without an error,
#   <!-- cluster: nodes -->   on every node,
#   <!-- cluster: worker -->  on a worker;
#   <!-- run -->              is run by test/docs_check, where there is no Citus.
# The blocks run in order. The document's db0, db1 and db2 are this test's servers.
use Idem;
use Citus;

my $text = slurp_file("$FindBin::RealBin/../../docs/scaling.md");
my @marked = $text =~ /^<!-- (?:cluster(?:: \w+)?|run) -->\n```sql\n/mg;
my @all = $text =~ /^```sql\n/mg;
is(scalar @marked, scalar @all, 'every block of SQL is run by a test');

my %nodes = map { $_ => new_worker($_) } qw(db0 db1 db2);
my %asked = ('' => ['db0'], nodes => [qw(db0 db1 db2)], worker => ['db1']);
my $printed = '';

while ($text =~ /^<!-- cluster(?:: (\w+))? -->\n```sql\n(.*?)^```$/msg)
{
	my ($whom, $sql) = ($1 // '', $2);
	$sql =~ s/'(db\d)', 5432/"'" . $nodes{$1}->host . "', " . $nodes{$1}->port/ge;
	foreach my $name (@{ $asked{$whom} })
	{
		my ($status, $out, $err) = $nodes{$name}->psql('postgres', $sql, on_error_stop => 1);
		is($status, 0, "on $name: " . ($sql =~ /(.*)/)[0]) or diag($err);
		$printed .= "$out\n";
	}
}

# What two of them say.
like($printed, qr/^execute\nt$/m, 'a claim in a transaction');
like($printed, qr/^execute\|\nreplay\|201$/m, 'and in a function that is distributed');

done_testing();
