# idem_distribute waits for running calls, and calls that come meanwhile wait for it.
use Idem;
use Citus;

my ($coordinator, $worker1) = new_cluster();
begin_claim($coordinator, 'early', principal => 'tenant 1');

# It has read the records, and writes one when the other already waits for it.
my ($caller, $operator, $late) = map { session($coordinator) } 1 .. 3;
ask($caller, 'BEGIN');
is(outcome_in($caller, 'early', principal => 'tenant 1'), 'in_progress', 'a transaction has read');
my $pid = pid_of($operator);
ask_later($operator, q{SELECT idem_distribute('payment')});
sub waits { return $coordinator->safe_psql('postgres', "SELECT count(*) FROM pg_locks WHERE pid = $_[0] AND NOT granted") > 0; }
wait_until { waits($pid) } 'idem_distribute to wait';
is(outcome_in($caller, 'new', principal => 'tenant 1'), 'execute', 'it goes on');
is(ask($caller, q{SELECT idem_complete('new', 201, principal => 'tenant 1')}), 't', 'and writes');

my $late_pid = pid_of($late);
ask_later($late, q{SELECT outcome FROM idem_begin('new', principal => 'tenant 1')});
wait_until { waits($late_pid) } 'a later caller to wait';
ask($caller, 'COMMIT');
is(ask($operator), '', 'the records are distributed');
is(ask($late), '40001', 'and the later caller is to repeat');
is(outcome_in($late, 'new', principal => 'tenant 1'), 'replay', 'which answers it');
is(begin_claim($worker1, 'new', principal => 'tenant 1')->{outcome}, 'replay', 'as it is anywhere');
$_->quit foreach $caller, $operator, $late;

done_testing();
