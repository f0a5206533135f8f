# monitoring/ against the real postgres_exporter: a role with pg_monitor alone sees every series
# that the dashboard and the alerts select, with the numbers of the views, and no data that a client
# sent.
use HTTP::Tiny;
use IPC::Run;
use JSON::PP ();
use Idem;

my $exporter = in_path('prometheus-postgres-exporter') // in_path('postgres_exporter');
my $promtool = in_path('promtool');
if (!$exporter)
{
	my $why = 'postgres_exporter (Debian: prometheus-postgres-exporter) is not installed';
	diag "monitoring/ is not tested: $why";
	plan skip_all => $why;
}

# Data that clients send. None of it may be scraped.
my $private = 'do-not-scrape';
my $monitoring = "$FindBin::RealBin/../../monitoring";
my @outcomes = qw(execute replay in_progress mismatch retry_later exhausted expired unknown);
my $running;
my $http = HTTP::Tiny->new(timeout => 30, no_proxy => ['127.0.0.1']);

sub in_path ($program)
{
	my ($found) = grep { -x } map { "$_/$program" } split /:/, $ENV{PATH};
	return $found;
}

# ---- the exporter ----

# scrape($node, $database): starts an exporter for that database, asks it once, and ends it. An
# exporter caches answers for minutes, so each scrape starts a new one.
sub scrape ($node, $database)
{
	my $answer;

	# Another process may have taken the free port by the time the exporter wants it.
	for my $try (1 .. 5)
	{
		$answer = ask_exporter($node, $database);
		last if $answer;
	}
	is($answer && $answer->{status}, 200, "the exporter has scraped $database")
	  or diag $answer && $answer->{content};
	return $answer->{content};
}

# Undef if it has ended on its own.
sub ask_exporter ($node, $database)
{
	my $address = '127.0.0.1:' . PostgreSQL::Test::Cluster::get_free_port();
	my ($log, $answer) = ('');

	local $ENV{DATA_SOURCE_NAME} = join ' ', 'user=monitor', 'host=' . $node->host,
		'port=' . $node->port, "dbname=$database", 'sslmode=disable';
	$running = IPC::Run::start [
		$exporter, "--web.listen-address=$address", "--extend.query-path=$monitoring/queries.yaml"
	], '>&', \$log;
	wait_until
	{
		$running->pump_nb if $running->pumpable;
		$answer = $http->get("http://$address/metrics");
		$answer->{status} != 599 || !$running->pumpable;
	}
	'the exporter to listen';
	stop_exporter();
	note $log;
	return $answer->{status} == 599 ? undef : $answer;
}

sub stop_exporter
{
	$running->kill_kill if $running;
	undef $running;
	return;
}

# Also when a test dies.
END
{
	my $status = $?;
	stop_exporter();
	$? = $status;
}

# The series of a scrape: { name => ..., labels => {...}, value => ... }
sub series_of ($text)
{
	return map {
		/^([a-zA-Z_:][\w:]*)(?:\{(.*)\})? (\S+)$/ or die "not a series: $_";
		{ name => $1, labels => labels_of($2 // ''), value => $3 }
	} grep { !/^(?:#|$)/ } split /\n/, $text;
}

sub labels_of ($list)
{
	return { $list =~ /(\w+)="((?:[^"\\]|\\.)*)"/g };
}

# ---- what the dashboard and the alerts ask for ----

sub dashboard
{
	return JSON::PP->new->decode(slurp_file("$monitoring/dashboard.json"));
}

sub dashboard_panels
{
	return @{ dashboard()->{panels} };
}

sub dashboard_expressions
{
	my $dashboard = dashboard();
	my @targets = map { @{ $_->{targets} // [] } } dashboard_panels();
	my @variables = grep { $_->{type} eq 'query' } @{ $dashboard->{templating}{list} };

	return (map { $_->{expr} } @targets),
	  (map { $_->{definition} =~ /^label_values\((.*), \w+\)$/ } @variables);
}

# The "expr" of each rule: the rest of its line, or the deeper lines below it.
sub alert_expressions
{
	return slurp_file("$monitoring/alerts.yaml") =~ /^\ +expr:\ ((?:\|\n(?:\ {10,}.*\n)+)|.*\n)/gmx;
}

# selectors_in($expression): [name, matchers] of each series selector. After labels, ranges, numbers
# and functions are removed, the rest is names.
sub selectors_in ($expression)
{
	$expression =~ s/^\|\n//;
	$expression =~ s/\b(?:by|without|on|ignoring)\s*\([^)]*\)//g;
	$expression =~ s/\[[^\]]*\]//g;
	$expression =~ s/\b(?:and|or|unless|offset|bool)\b//g;
	my @found;
	while ($expression =~ /\b([a-zA-Z_:][\w:]*)\b(?!\s*\()(?:\{([^}]*)\})?/g)
	{
		push @found, [ $1, $2 // '' ];
	}
	return @found;
}

# Whether a series has the labels that a selector asks for. A variable of the dashboard matches any
# value, as does the label "instance", which Prometheus adds.
sub selects ($selector, $series)
{
	my ($name, $matchers) = @$selector;

	return 0 unless $series->{name} eq $name;
	while ($matchers =~ /(\w+)(=~|=)"([^"]*)"/g)
	{
		my ($label, $operator, $wanted) = ($1, $2, $3);
		next if $label eq 'instance';
		my $has = $series->{labels}{$label} // return 0;
		next if $wanted =~ /^\$/;
		return 0 unless $operator eq '=' ? $has eq $wanted : $has =~ /^(?:$wanted)$/;
	}
	return 1;
}

sub finds_what_is_asked_for ($where, $series, @expressions)
{
	my %selectors = map { join('{', @$_) => $_ } map { selectors_in($_) } @expressions;

	cmp_ok(scalar keys %selectors, '>', 5, "$where: series are asked for");
	foreach my $text (sort keys %selectors)
	{
		my $found = grep { selects($selectors{$text}, $_) } @$series;
		ok($found, "$where: $text}");
	}
	return;
}

# ---- the workload that is counted ----

my $node = new_node('main',
	shared_preload_libraries => 'idempotency',
	max_prepared_transactions => 1,
	'idempotency.default_lease' => '1h',
	'idempotency.encryption_key_file' => '/nowhere/keys',
	'idempotency.cleanup_interval' => '1s',
	'idempotency.cleanup_grace' => 0);
$node->safe_psql('postgres', 'CREATE ROLE monitor LOGIN; GRANT pg_monitor TO monitor');

sub begin_private ($key, %named)
{
	return begin_claim($node, "$private-$key",
		principal => "$private-tenant", holder => "$private-holder", %named);
}

sub end_private ($function, $key, %named)
{
	return call($node, $function, key => "$private-$key", principal => "$private-tenant", %named);
}

# Repeats the query until it has the answer expected after the lease expires.
sub await_outcome ($outcome, $key, %named)
{
	wait_until { begin_private($key, %named)->{outcome} eq $outcome } "$key to be $outcome";
	return;
}

sub fail_for_now ($key, $retry_after, %named)
{
	my $token = begin_private($key, %named)->{token};
	end_private('idem_fail', $key, token => $token, retryable => \'true', error => $private,
		retry_after => $retry_after, %named);
	return begin_private($key, %named)->{outcome};
}

# Each outcome, takeovers, retries, waits, and an abandoned claim.
sub make_decisions
{
	my @payload = (request => qq({"card": "$private"}));

	$node->safe_psql('postgres', q{SELECT idem_policy_set('once', max_attempts => 1),
		idem_policy_set('careful', on_lease_expiry => 'unknown'),
		idem_policy_set('hopeless', abandon_after => '1ms', on_abandon => 'fail')});
	my $token = begin_private('done', @payload)->{token};
	end_private('idem_complete', 'done', token => $token, status_code => 200, body => \"'$private'::text");
	is(begin_private('done', @payload)->{outcome}, 'replay', 'replay');
	is(begin_private('done', request => '{}')->{outcome}, 'mismatch', 'mismatch');
	begin_private('open');
	is(begin_private('open', wait => '20ms')->{outcome}, 'in_progress', 'in_progress, after a wait');
	is(fail_for_now('early', '1 hour'), 'retry_later', 'retry_later');
	is(fail_for_now('again', '0s'), 'execute', 'a retry');
	is(fail_for_now('once', '0s', scope => 'once'), 'exhausted', 'exhausted');
	is(begin_private('late', first_sent => '2000-01-01')->{outcome}, 'expired', 'expired');
	begin_private('slow', lease => '1ms');
	await_outcome('execute', 'slow');
	begin_private('lost', scope => 'careful', lease => '1ms');
	await_outcome('unknown', 'lost', scope => 'careful');
	begin_private('left', scope => 'hopeless', lease => '1ms');
	wait_until { record_state($node, "$private-left") eq 'failed' } 'the sweeper to give a claim up';
	# This server has no keys.
	call($node, 'idem_policy_set', scope_pattern => 'sealed', encrypt => \'true');
	isnt($node->psql('postgres', q{SELECT idem_begin('k', scope => 'sealed')}), 0, 'an error of encryption');
	$node->safe_psql('postgres', q{ALTER TABLE idempotency.record ADD CONSTRAINT narrow CHECK (scope <> 'refused')});
	isnt($node->psql('postgres', q{SELECT idem_begin('k', scope => 'refused')}), 0, 'an error of the store');
	$node->safe_psql('postgres', 'ALTER TABLE idempotency.record DROP CONSTRAINT narrow');
	return;
}

# Claims of every kind that stay, an abandoned one, and a record for the sweeper.
sub leave_claims ($session)
{
	begin_private('silent', lease => '1ms');
	ask($session, $_) foreach 'BEGIN', 'SELECT ' . invocation('idem_begin', key => "$private-prepared"),
		q{PREPARE TRANSACTION 'forgotten'}, 'BEGIN';
	is(outcome_in($session, "$private-transaction"), 'execute', 'a transaction holds a key');
	$node->safe_psql('postgres', q{SELECT idem_policy_set('brief', ttl => '1ms', retention => '1ms')});
	call($node, 'idem_once', key => "$private-brief", scope => 'brief');
	$node->poll_query_until('postgres', 'SELECT total_rows > 0 FROM idempotency.sweeper')
	  or die 'the sweeper does not come';
	return;
}

# The total of the counters, as the view has it.
sub counted
{
	return JSON::PP->new->decode($node->safe_psql('postgres',
		'SELECT row_to_json(s) FROM idempotency.stats s WHERE total'));
}

# The sum of a metric over the scopes, of one outcome if given.
sub sum_of ($series, $name, $outcome = undef)
{
	my $sum = 0;

	$sum += $_->{value} foreach grep
	{ $_->{name} eq $name && (!defined $outcome || $_->{labels}{outcome} eq $outcome) } @$series;
	return $sum;
}

my $session = session($node);
subtest 'something happens' => sub { make_decisions(); leave_claims($session) };

my $text = scrape($node, 'postgres');
my @series = series_of($text);

# ---- the scraped series ----

subtest 'the exporter likes the queries' => sub {
	is(sum_of(\@series, 'pg_exporter_user_queries_load_error'), 0, 'the file is loaded');
	is(sum_of(\@series, 'pg_exporter_last_scrape_error'), 0, 'pg_monitor is enough for every query');
	is(sum_of(\@series, 'pg_up'), 1, 'the server is up');
};

subtest 'metrics of the dashboard and the alerts exist' => sub {
	finds_what_is_asked_for('dashboard', \@series, dashboard_expressions());
	finds_what_is_asked_for('alerts', \@series, alert_expressions());
};

subtest 'the dashboard shows all metrics' => sub {
	my %shown = map { $_->[0] => 1 } map { selectors_in($_) } dashboard_expressions();
	my %scraped = map { $_->{name} => 1 } grep { $_->{name} =~ /^idempotency_/ } @series;

	is(join(' ', grep { !$shown{$_} } sort keys %scraped), '', 'every metric has a panel');
	my ($taken, $overlaps, $undescribed, %ids) = ({}, '', '');
	foreach my $panel (dashboard_panels())
	{
		my ($x, $y, $w, $h) = @{ $panel->{gridPos} }{qw(x y w h)};
		$ids{ $panel->{id} }++;
		foreach my $place (map { my $row = $_; map { "$_,$row" } $x .. $x + $w - 1 } $y .. $y + $h - 1)
		{
			$overlaps .= " $panel->{id}" if $taken->{$place}++;
		}
		$overlaps .= " $panel->{id}" if $x + $w > 24;
		$undescribed .= " $panel->{id}" unless $panel->{type} eq 'row' || $panel->{description};
	}
	is($overlaps, '', 'no panel lies on another');
	is($undescribed, '', 'each panel has a description');
	is(scalar(grep { $_ > 1 } values %ids), 0, 'and has an id of its own');
};

subtest 'a wrong name or label would be noticed' => sub {
	my @wrong = map { selectors_in($_) } 'sum by (x) (rate(idempotency_typo_total{x="y"}[5m]))',
		'idempotency_decisions_total{outcome="typo"} > 0', 'idempotency_takeovers_total{typo=~"$x"}';

	is(scalar(@wrong), 3, 'all are seen');
	is(scalar(grep { my $selector = $_; grep { selects($selector, $_) } @series } @wrong),
		0, 'none is found');
};

subtest 'the counters are those of idempotency.stats' => sub {
	my $counted = counted();
	my %column_of = (execute => 'executed', replay => 'replayed', mismatch => 'mismatches');

	foreach my $outcome (@outcomes)
	{
		my $expected = $counted->{ $column_of{$outcome} // $outcome };
		cmp_ok($expected, '>', 0, "$outcome has happened");
		is(sum_of(\@series, 'idempotency_decisions_total', $outcome), $expected, 'and is exported');
	}
	foreach my $event (qw(takeovers retries completed failed waits wait_seconds swept abandoned encryption_errors store_errors))
	{
		cmp_ok($counted->{$event}, '>', 0, "$event: has happened");
		is(sum_of(\@series, "idempotency_${event}_total"), $counted->{$event}, 'and is exported');
	}
};

subtest 'claims and the sweeper' => sub {
	my %expected = (
		idempotency_transactional_claims_open => 1,
		idempotency_transactional_claims_prepared => 1,
		# "open", "again" and "slow".
		idempotency_leased_claims_in_flight => 3,
		idempotency_leased_claims_abandoned => 1,
		idempotency_leased_claims_unknown => 1,
		idempotency_sweeper_launcher_running => 1,
		# The key file is unusable.
		idempotency_encryption_keys_missing => 1,
		idempotency_statistics_available => 1,
		idempotency_sweeper_consecutive_failures => 0);

	is(sum_of(\@series, $_), $expected{$_}, $_) foreach sort keys %expected;
	cmp_ok(sum_of(\@series, $_), '>', 0, "$_ moves")
	  foreach qw(idempotency_transactional_claims_oldest_seconds
		idempotency_leased_claims_oldest_seconds idempotency_leased_claims_overdue_seconds
		idempotency_sweeper_removed_total idempotency_sweeper_last_run_duration_seconds);
	cmp_ok(abs(time - sum_of(\@series, 'idempotency_sweeper_last_run_timestamp_seconds')),
		'<', 600, 'the last run was just now');
};

subtest 'names and labels' => sub {
	my @ours = grep { $_->{name} =~ /^idempotency_/ } @series;
	my %labels = map { map { $_ => 1 } keys %{ $_->{labels} } } @ours;
	my ($untyped, $misnamed) = ('', '');

	is(join(' ', sort keys %labels), 'datname outcome scope server store', 'no other label');
	unlike($text, qr/\Q$private\E/, 'no key, principal, holder, payload, body or error');
	while ($text =~ /^# TYPE (idempotency_\w+) (\w+)$/mg)
	{
		$untyped .= " $1" if $2 eq 'untyped';
		$misnamed .= " $1" if ($2 eq 'counter') != ($1 =~ /_total$/ ? 1 : 0);
	}
	is($untyped, '', 'every column has a type');
	is($misnamed, '', 'counters, and only they, end in _total');
};

subtest 'the rules' => sub {
	plan skip_all => 'promtool (Debian: prometheus) is not installed' unless $promtool;
	command_ok([ $promtool, 'check', 'rules', "$monitoring/alerts.yaml" ], 'are well-formed');
	command_ok([ $promtool, 'test', 'rules', "$monitoring/alerts.test.yaml" ], 'fire when they should');
};

# ---- cases in which the exporter must not fail ----

# Their row has no scope; as a label this equals the scope ''.
subtest 'more scopes than there is room for' => sub {
	$node->safe_psql('postgres',
		q{SELECT count(*) FROM generate_series(1, 2000) AS n, idem_once('x', scope => 'scope-' || n)});
	begin_private('more', scope => '');
	my %decided = map { $_->{labels}{scope} => $_->{value} }
	  grep { $_->{name} eq 'idempotency_decisions_total' && $_->{labels}{outcome} eq 'execute' }
	  series_of(scrape($node, 'postgres'));

	cmp_ok($decided{''}, '>', 0, q{the scope ''});
	cmp_ok($decided{'(other scopes)'}, '>', 0, 'and those without room');
};

subtest 'a database without the extension' => sub {
	$node->safe_psql('postgres', 'CREATE DATABASE without');
	my @others = series_of(scrape($node, 'without'));

	is(scalar(grep { $_->{name} =~ /^idempotency_/ } @others), 0, 'has no metrics');
	is(sum_of(\@others, 'pg_up'), 1, 'but the others');
};

$session->quit;
$node->safe_psql('postgres', q{ROLLBACK PREPARED 'forgotten'});
$node->stop;

subtest 'a server that has not preloaded the library' => sub {
	$node->adjust_conf('postgresql.conf', 'shared_preload_libraries', q{''});
	$node->start;
	call($node, 'idem_once', key => 'x', scope => 'not preloaded');
	my @others = series_of(scrape($node, 'postgres'));

	is(scalar(grep { $_->{name} eq 'idempotency_sweeper_backlog_records' } @others),
		1, 'what needs no statistics is there');
	is(scalar(grep { $_->{name} eq 'idempotency_decisions_total' } @others),
		$node->pg_version >= 17 ? 8 : 0, 'before 17 there are no counters');
	is(sum_of(\@others, 'pg_exporter_last_scrape_error'), 0, 'and that is not an error');
	$node->stop;
};

done_testing();
