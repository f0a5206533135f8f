# frozen_string_literal: true

require "rails_helper"

Shop.initialize!

# What the conformance suite cannot see.
class WorkerTest < Minitest::Test
  include Support

  def setup
    super
    @scope = "work #{SecureRandom.hex(4)}"
    @errors = Queue.new
    @told = Queue.new
    sql("SELECT idem_policy_set($1, store_request => true, retry_base => '0', max_attempts => 3)", @scope)
  end

  def database
    @database ||= Idempotency::Pg.new { Database.connect }
  end

  def worker(from = database, **options, &work)
    Idempotency::Worker.new(from, @scope, poll: 0.02, on_error: ->(*error) { @errors << error }, **options, &work)
  end

  # Runs one until the block says so.
  def working(worker)
    running = Thread.new { worker.run }
    yield
  ensure
    worker.stop
    Timeout.timeout(60) { running.join }
  end

  def queue(request = { "to" => "shop" })
    Database.connect do |connection|
      connection.transaction do
        connection.exec_params("SELECT idem_begin($1, $2, scope => $3, principal => $4, method => 'POST', path => '/hook')",
                               [@key, JSON.generate(request), @scope, @account])
        connection.exec_params("SELECT idem_fail($1, 'queued', retryable => true, scope => $2, principal => $3, retry_after => '0')",
                               [@key, @scope, @account])
      end
    end
  end

  def stored
    sql("SELECT status, status_code, attempt, error FROM idempotency.records WHERE key = $1", @key)[0]
  end

  def pay(connection)
    connection.exec_params("INSERT INTO payment (account) VALUES ($1)", [@account])
  end

  def test_options_are_checked
    {
      size: 0, lease: 0, poll: "1", channel: "", mode: :leasing, holder: 5, on_error: "log", database_timeout: -1, handler_timeout: nil
    }.each do |name, value|
      error = assert_raises(ArgumentError, name) { worker(name => value) { nil } }
      assert_includes error.message, "`#{name}` has to be"
    end
    assert_includes assert_raises(ArgumentError) { worker(retention: 1) { nil } }.message, "no option `retention`"
    assert_includes assert_raises(ArgumentError) { worker(size: 5) { nil } }.message, "less than the pool's connections"
    assert_raises(ArgumentError) { worker }
  end

  def test_what_the_handler_gets
    queue
    working(worker { |work| @told << work }) { eventually("completed") { record == "completed" } }
    work = @told.pop
    assert_equal [@key, @scope, @account, 2, "POST", "/hook", { "to" => "shop" }, "queued", nil, {}],
                 [work.key, work.scope, work.principal, work.attempt, work.http_method, work.path, work.request, work.error,
                  work.recovery_point, work.state]
    assert_kind_of Integer, work.token
    assert_equal ["completed", nil, "2", nil], stored
  end

  def test_a_rejection_undoes_the_work_and_is_stored
    queue
    rejecting = worker { |work| pay(work.client) && raise(Idempotency::Rejection, 422) }
    working(rejecting) { eventually("completed") { record == "completed" } }
    assert_equal ["422", 0], [stored[1], payments]
  end

  def test_errors_are_told_with_their_work
    queue
    working(worker { raise NotImplementedError, "not yet" }) { eventually("exhausted") { record == "exhausted" } }
    error, work = @errors.pop
    assert_equal ["not yet", @key, "not yet"], [error.message, work.key, stored[3]]
  end

  def test_steps_are_for_leased_workers
    queue
    working(worker { |work| work.step(:pay) { pay(work.client) } }) { eventually("exhausted") { record == "exhausted" } }
    assert_includes stored[3], "mode: :leased"
  end

  def test_steps_are_kept_between_attempts
    queue
    leased = worker(mode: :leased) do |work|
      work.step(:pay) { Database.connect { |connection| pay(connection) && nil } }
      raise Idempotency::NothingHappened, "more to do" if work.attempt == 2
    end
    working(leased) { eventually("completed") { record == "completed" } }
    assert_equal [1, "3"], [payments, stored[2]]
  end

  def test_an_abort_is_told_and_leaves_no_claim
    queue
    waiting = worker(mode: :leased) do |work|
      @told << work
      work.wait_until_lost
      work.check
    end
    running = Thread.new { waiting.run }
    @told.pop
    2.times { waiting.abort }
    Timeout.timeout(60) { running.join }
    assert_equal %w[retryable] << "the worker has been aborted", stored.values_at(0, 3)
  end

  def test_a_stop_before_it_runs
    stopped = worker { nil }
    2.times { stopped.stop }
    Timeout.timeout(60) { stopped.run }
  end

  # The channel is the test's own: the session of an earlier test may listen for a moment more.
  def test_a_lost_listener_is_replaced
    listening = worker(channel: "To do: #{@scope}") { |work| @told << work }
    listeners = -> { sql("SELECT pid FROM pg_stat_activity WHERE query LIKE 'LISTEN %' || $1 || '%'", @scope).flatten }
    working(listening) do
      eventually("it listens") { listeners.call.size == 1 }
      lost = listeners.call[0]
      sql("SELECT pg_terminate_backend($1)", lost)
      eventually("it listens again") { listeners.call.then { |pids| pids.size == 1 && pids != [lost] } }
      queue
      @told.pop
    end
    assert_kind_of PG::Error, @errors.pop[0]
  end

  def test_active_record
    queue
    active = worker(Idempotency::ActiveRecord.new, channel: "records", size: 2) do
      ActiveRecord::Base.connection.execute("INSERT INTO payment (account) VALUES ('#{@account}')")
      raise "again" if @told.push(true).size == 1
    end
    working(active) { eventually("completed") { record == "completed" } }
    assert_equal [1, "3"], [payments, stored[2]]
    assert_equal 0, ActiveRecord::Base.connection_pool.connections.count(&:in_use?)
  end

  def test_a_mistake_ends_it
    error = assert_raises(PG::InvalidParameterValue) { Idempotency::Worker.new(database, " ") { nil }.run }
    assert_includes error.message, "scope"
  end
end
