# frozen_string_literal: true

require "helper"
require "tls"

class PgTest < Minitest::Test
  include Support

  def database
    @database ||= Idempotency::Pg.new(size: 3) { Database.connect }
  end

  def pay(claim)
    claim.client.exec_params("INSERT INTO payment (account, amount) VALUES ($1, 1)", [@account])
    Idempotency::Answer.new(status: 201, body: "paid", headers: [%w[X-One 1]])
  end

  def transactionally(**more, &work)
    Idempotency.transactionally(database, key: @key, principal: @account, **more, &(work || method(:pay)))
  end

  def leased(**more, &work)
    Idempotency.leased(database, key: @key, principal: @account, **more, &work)
  end

  def test_executed_and_replayed
    first, again = Array.new(2) { transactionally }
    assert_equal %w[executed replay], [first.outcome, again.outcome]
    assert_equal [201, "paid", [%w[X-One 1]]], [again.answer.status, again.answer.body, again.answer.headers]
    assert_equal 1, payments
  end

  def test_a_rejection_is_stored_without_its_work
    2.times do
      result = transactionally { |claim| pay(claim) && raise(Idempotency::Rejection.new(409, { error: "no" })) }
      assert_equal [409, '{"error":"no"}', "application/json"], [result.answer.status, result.answer.body, result.answer["content-type"]]
    end
    assert_equal 0, payments
    assert_equal "completed", record
  end

  def test_a_rejections_fields_and_status
    rejection = Idempotency::Rejection.new(409, { error: "no" }, "content-type" => "application/problem+json")
    assert_equal [%w[content-type application/problem+json]], rejection.answer.headers
    assert_raises(TypeError) { Idempotency::Rejection.new(:conflict) }
  end

  def test_a_rescue_that_hides_an_error
    assert_raises(PG::InFailedSqlTransaction) do
      transactionally do |claim|
        begin
          claim.client.exec("SELECT 1/0")
        rescue PG::Error
          nil
        end
        Idempotency::Answer.new(status: 201)
      end
    end
    assert_nil record
    assert_equal "executed", transactionally.outcome
  end

  def test_a_throw_rolls_back
    caught = catch(:warden) { transactionally { |claim| pay(claim) && throw(:warden, "login") } }
    assert_equal ["login", 0, nil], [caught, payments, record]
    assert_equal "executed", transactionally.outcome
  end

  def test_a_throw_ends_a_lease
    caught = catch(:warden) { leased { throw(:warden, "login") } }
    assert_equal %w[login retryable], [caught, record]
  end

  def test_errors_that_are_no_standard_errors_roll_back
    assert_raises(NotImplementedError) { transactionally { |claim| pay(claim) && raise(NotImplementedError) } }
    assert_raises(NotImplementedError) { leased { raise NotImplementedError } }
    assert_equal 0, payments
  end

  def test_a_late_handler_is_interrupted_in_a_statement
    assert_raises(Idempotency::HandlerLate) do
      transactionally(settings: { handler_timeout: 0.1 }) { |claim| pay(claim) && claim.client.exec("SELECT pg_sleep(0.5)") }
    end
    eventually("the key is free") { transactionally.outcome == "executed" }
    assert_equal 1, payments
  end

  def test_a_conflict_within_another_error
    runs = 0
    result = transactionally do |claim|
      claim.client.exec("DO $$ BEGIN RAISE SQLSTATE '40001'; END $$") if (runs += 1) == 1
      pay(claim)
    rescue PG::Error
      raise "it is not said why"
    end
    assert_equal ["executed", 2], [result.outcome, runs]
  end

  def test_a_rejection_because_of_a_conflict_is_stored
    runs = 0
    work = lambda do |claim|
      runs += 1
      claim.client.exec("DO $$ BEGIN RAISE SQLSTATE '40001'; END $$")
    rescue PG::TRSerializationFailure
      raise Idempotency::Rejection, 409
    end
    first, again = Array.new(2) { Idempotency.transactionally(database, key: @key, &work) }
    assert_equal [["executed", 409], ["replay", 409], 1], [first, again].map { |one| [one.outcome, one.answer.status] } << runs
  end

  def test_the_failure_of_another_server_is_the_handlers
    runs = 0
    assert_raises(PG::ConnectionBad) { transactionally { (runs += 1) && PG.connect(host: "127.0.0.1", port: 1) } }
    other = Database.connect
    assert_raises(PG::TRSerializationFailure) do
      transactionally { (runs += 1) && other.exec("DO $$ BEGIN RAISE SQLSTATE '40001'; END $$") }
    end
    assert_equal 2, runs
    work = proc { (runs += 1) && other.exec("DO $$ BEGIN RAISE SQLSTATE '40001'; END $$") }
    transactional = Idempotency::Transactional.new(database, nil, Idempotency::Settings.new)
    transactional.stub(:answer_of, ->(transaction, _) { transactional.send(:let, transaction, &work) }) do
      assert_raises(PG::TRSerializationFailure) { transactional.work_off(nil) }
    end
    assert_equal 3, runs
  end

  def test_an_open_pipeline_of_the_handler
    error = assert_raises(Idempotency::Error) do
      transactionally { |claim| pay(claim).tap { claim.client.enter_pipeline_mode } }
    end
    assert_includes error.message, "pipeline"
    assert_equal "executed", transactionally.outcome
  end

  def test_a_late_write_reaches_no_other_request
    kept = nil
    transactionally { |claim| (kept = claim).then { pay(claim) } }
    error = assert_raises(Idempotency::Error) { kept.client.exec("SELECT 1") }
    assert_includes error.message, "has ended"
  end

  def test_a_connection_closed_while_idle
    transactionally
    end_sessions
    assert_equal "replay", transactionally.outcome
  end

  # The ROLLBACK of a replay has an answer that nothing has read yet.
  def test_connections_closed_after_replays
    transactionally
    @database = Idempotency::Pg.new(size: 6) { Database.connect }
    open = Array.new(6) { database.open(["SELECT 1"]) }
    open.each(&:nothing_done).each(&:rollback)
    end_sessions
    assert_equal "replay", transactionally.outcome
  end

  def test_sessions_that_are_ended_are_noticed_through_tls
    tls = Tls.new
    @database = Idempotency::Pg.new(size: 3) { PG.connect(host: "127.0.0.1", port: tls.port, dbname: Database::NAME, sslmode: "require") }
    Array.new(3) { database.open(nil) }.each(&:rollback)
    end_sessions
    3.times { Timeout.timeout(60) { tls.ended.pop } }
    runs = 0
    # The server frees the key when it has ended the session, which the client may notice before.
    result = transactionally(wait: 60, settings: { attempts: 2 }) do |claim|
      sql("SELECT pg_terminate_backend($1)", claim.client.backend_pid) && sleep if (runs += 1) == 1
      pay(claim)
    end
    assert_equal ["executed", 2, 1], [result.outcome, runs, payments]
  end

  # As of the work's own thread: its answer is unread at the moment of the look.
  def test_a_statement_that_begins_and_ends_during_a_look_is_no_end_of_the_session
    link = database.open(nil)
    once = true
    link.define_singleton_method(:closing?) do
      next super() unless once

      once = false
      connection.send_query("SELECT 1")
      socket_io.wait_readable
      super().tap { connection.get_last_result }
    end
    refute link.gone?
    link.rollback
  end

  # The work may have sent a statement before it was told.
  def test_the_reason_for_which_a_connection_is_lost_is_read_behind_a_statement
    link = database.open(nil)
    link.connection.send_query("SELECT 1")
    link.check
    link.connection.send_query("SELECT pg_terminate_backend(pg_backend_pid())")
    error = assert_raises(PG::ConnectionBad) { link.check }
    assert_includes error.message, "administrator command"
    link.rollback
  end

  # The interruption waits for it, and comes at its end.
  def test_an_interruption_does_not_come_while_connections_change_hands
    late = Idempotency::DatabaseLate
    pool = database.instance_variable_get(:@pool)
    slow = true
    slowly = lambda do |result|
      once, slow = slow, false
      nil until !once || Thread.pending_interrupt?
      result
    end
    pool.define_singleton_method(:put) { |connection| slowly.call(super(connection)) }
    assert_raises(late) { Timeout.timeout(60) { Idempotency::Limit.within(0.05, late) { database.statement("SELECT 1") } } }
    pool.singleton_class.remove_method(:put)
    slow = true
    database.define_singleton_method(:open) { |first| slowly.call(super(first)) }
    assert_raises(Idempotency::DatabaseAway) { transactionally(settings: { database_timeout: 0.05, attempts: 1 }) }
    # Others' interruptions, as of a middleware that limits requests, are no different.
    [proc { |thread| thread.raise(IOError) }, :kill.to_proc].each do |interrupt|
      slow = true
      thread = Thread.new { transactionally }
      thread.report_on_exception = false
      eventually("it has the connection") { !slow }
      interrupt.call(thread)
      thread.join rescue assert_kind_of(IOError, $!)
    end
    database.singleton_class.remove_method(:open)
    free = Timeout.timeout(60) { Array.new(3) { database.open(nil) } }
    assert_equal 3, free.map(&:connection).uniq.size
    free.each(&:rollback)
  end

  # As under a server that loads the application before it forks. In the end the parent's session is as before.
  def test_a_forked_process_has_connections_of_its_own
    backend = -> { database.statement("SELECT pg_backend_pid() AS pid").first["pid"] }
    held = database.open(nil)
    ours = backend.call
    said, says = IO.pipe
    child = fork do
      says.write((backend.call == ours ? "shared" : "own"))
      says.close
      GC.start
    ensure
      exit!
    end
    says.close
    assert_equal "own", Timeout.timeout(60) { said.read }
    Process.wait(child)
    assert_equal ours, backend.call
    held.check # its session is the parent's as well
    held.rollback
  end

  def test_more_requests_than_connections
    runs = Queue.new
    results = Array.new(20) do |number|
      Thread.new { Idempotency.transactionally(database, key: "#{@key}-#{number % 4}", settings: { attempts: 50, database_timeout: 60 }) { |claim| runs << 1; pay(claim) } }
    end.map(&:value)
    assert_equal 4, runs.size
    assert_equal 4, payments
    assert_empty results.map(&:outcome) - %w[executed replay in_progress]
  end

  def test_once
    applied = Array.new(2) { Idempotency.once(database, @key) { |connection| connection.exec_params("INSERT INTO payment (account) VALUES ($1)", [@account]) } }
    assert_equal [[true, false], 1], [applied, payments]
    assert_raises(PG::InFailedSqlTransaction) do
      Idempotency.once(database, "#{@key}-2") do |connection|
        connection.exec("SELECT 1/0")
      rescue PG::Error
        nil
      end
    end
  end

  def test_a_message_whose_connection_is_lost_while_its_work_waits
    runs = 0
    applied = Timeout.timeout(60) do
      Idempotency.once(database, @key) do |connection|
        sql("SELECT pg_terminate_backend($1)", connection.backend_pid) && sleep if (runs += 1) == 1
      end
    end
    assert_equal [true, 2], [applied, runs]
  end

  def test_steps_are_not_repeated
    calls = []
    work = lambda do |claim|
      charge = claim.step(:charge) { calls << 1 and { "id" => "ch_1" } }
      raise "broken" if claim.attempt == 1

      Idempotency::Answer.new(status: 201, body: charge["id"])
    end
    assert_raises(RuntimeError) { leased(&work) }
    sql("SELECT idem_resolve($1, 'release', scope => 'functions', principal => $2, even_if_running => true)", @key, @account)
    assert_equal ["ch_1", [1]], [leased(&work).answer.body, calls]
  end

  def test_nothing_happened_and_unknown
    assert_raises(Idempotency::NothingHappened) { leased { raise Idempotency::NothingHappened, "down" } }
    assert_equal "retryable", record
    @key += "-2"
    result = leased do |claim|
      claim.unknown("no answer", "re_1")
      assert_raises(Idempotency::Error) { claim.step("more") { 1 } }
      Idempotency::Answer.new(status: 202)
    end
    assert_equal ["not_kept", 202, "unknown"], [result.outcome, result.answer.status, record]
  end

  def test_work_without_an_answer_ends_its_claim
    assert_raises(NoMethodError) { leased { nil } }
    assert_equal "retryable", record
  end

  def test_a_derived_key
    key = Array.new(2) { Idempotency.transactionally(database, derive: 60, json: '{"a":1}', http_method: "POST", target: "/x") { |claim| pay(claim) } }
    assert_equal %w[executed replay], key.map(&:outcome)
    assert_raises(ArgumentError) { Idempotency.transactionally(database) { nil } }
  end

  def test_a_principal_is_a_string_or_an_integer
    [Object.new, nil, false].each do |principal|
      assert_raises(Idempotency::Error) { Idempotency.transactionally(database, key: @key, principal:) { nil } }
    end
    assert_equal "7", Idempotency.transactionally(database, key: @key, principal: 7) { |claim| Idempotency::Answer.new(body: claim.principal) }.answer.body
  end

  def test_a_verdict_that_is_none_is_an_error_and_keeps_nothing
    settings = { verdict: ->(_) { :kepp } }
    error = assert_raises(Idempotency::Error) { transactionally(settings:) }
    assert_includes error.message, "`verdict` has to return keep, free, unknown or nil, not kepp"
    assert_equal [0, nil], [payments, record]
    assert_raises(Idempotency::Error) { leased(settings:) { Idempotency::Answer.new(status: 201) } }
    assert_equal "retryable", record
  end

  def test_an_unknown_end_that_cannot_be_stored_is_no_failure_to_try_again
    ours = database
    statement = ours.method(:statement)
    refused = ->(sql, values) { sql.include?("idem_unknown") ? raise(Idempotency::Error, "no") : statement.call(sql, values) }
    ours.stub(:statement, refused) do
      settings = { verdict: ->(_) { :unknown } }
      assert_raises(Idempotency::Error) { Idempotency.leased(ours, key: @key, settings:) { Idempotency::Answer.new } }
    end
    assert_equal "in_progress", record
  end

  # ruby-pg takes a Hash for a value with its type.
  def test_json_is_a_text
    transactionally(json: '{"a": 1}')
    assert_equal %w[replay mismatch], ['{"a":1}', '{"a":2}'].map { |json| transactionally(json:).outcome }
    assert_raises(PG::InvalidTextRepresentation) { transactionally(json: { a: 1 }) }
  end

  def test_settings_are_checked
    assert_raises(ArgumentError) { transactionally(settings: { timeout: 5 }) }
  end

  def test_types_and_names_of_the_application
    mapped = Idempotency::Pg.new do
      Database.connect.tap do |connection|
        connection.type_map_for_results = PG::BasicTypeMapForResults.new(connection)
        connection.type_map_for_queries = PG::BasicTypeMapForQueries.new(connection)
        connection.field_name_type = :symbol
      end
    end
    results = Array.new(2) { Idempotency.transactionally(mapped, key: @key) { Idempotency::Answer.new(status: 201, body: "\xff\0".b) } }
    assert_equal ["\xff\0".b, 201], [results[1].answer.body, results[1].answer.status]
    assert_equal [true, false], Array.new(2) { Idempotency.once(mapped, @key) { nil } }
  end
end
