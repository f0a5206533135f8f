# frozen_string_literal: true

require "helper"

class KeyTest < Minitest::Test
  Key = Idempotency::Key

  def test_the_server_reads_the_same
    ["a", '"a"', '"a";v=1;w="x;y"', ' "a b" ', '"a\\"b\\\\"', "a,b", '"a', '"a" x', "", '""', '"  "', "a b", "ä", "x" * 255, "x" * 256].each do |field|
      expected = Database.sql("SELECT idem_parse_key($1)", field)[0][0]
      expected.nil? ? assert_nil(Key.parse(field), field) : assert_equal(expected, Key.parse(field), field)
    end
  end

  def test_quoted_and_read_again
    assert_equal 'a"b\\c', Key.parse(Key.quote('a"b\\c'))
  end

  def test_generated_keys_are_uuids_of_version_7_in_their_order
    one, two = Key.generate(1_700_000_000_000), Key.generate(1_700_000_000_001)
    assert_match(/\A018bcfe5-6800-7[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}\z/, one)
    assert_operator one, :<, two
    assert_equal 1000, Array.new(1000) { Key.generate }.uniq.size
  end
end

class OptionsTest < Minitest::Test
  def keys(**options)
    Idempotency::Keys.new(nil, **options)
  end

  def test_an_unknown_name_is_refused_where_the_route_is_made
    error = assert_raises(ArgumentError) { keys(principal: Idempotency::BEARER).transactional(scpoe: "x") }
    assert_includes error.message, "no option `scpoe`"
    assert_raises(ArgumentError) { keys(retention: 5) }
  end

  def test_impossible_values_are_refused
    {
      principal: "bearer", scope: "", methods: "POST", missing_key: "refuse", window: 0, exclude: [1], fingerprint: "x",
      ttl: -1, lease: "30", wait: -1, keep: true, verdict: 1, handler_timeout: Float::INFINITY,
      statuses: { in_progress: 200 }, key_header: "a b", echo_key: nil, max_request_bytes: 1.5, attempts: 0,
      database_timeout: nil, unprotected_without_database: 1, on_execute: :puts
    }.each do |name, value|
      error = assert_raises(ArgumentError, name) { keys.leased(principal: Idempotency::BEARER, name => value) }
      assert_includes error.message, "`#{name}` has to be"
    end
    assert_raises(ArgumentError) { keys.transactional }
  end

  # They would switch the protection off.
  def test_methods_that_no_request_has_are_refused
    [["post"], [], [:POST], %w[POST Patch]].each do |methods|
      error = assert_raises(ArgumentError, methods) { keys.leased(principal: Idempotency::BEARER, methods:) }
      assert_includes error.message, "`methods` has to be an array of methods in upper case"
    end
    assert keys.leased(principal: Idempotency::BEARER, methods: %w[PUT VERSION-CONTROL])
  end
end

class LimitTest < Minitest::Test
  Late = Class.new(StandardError)

  def test_what_ends_in_time
    assert_equal 3, Idempotency::Limit.within(600, Late) { 3 }
  end

  def test_a_rescue_does_not_hide_the_end
    assert_raises(Late) { Idempotency::Limit.within(0.05, Late) { begin; sleep; rescue StandardError; nil end } }
    assert_raises(Late) { Idempotency::Limit.within(0.05, Late) { begin; sleep; rescue Exception; nil end } } # rubocop:disable Lint/RescueException
  end

  def test_the_outer_limit_is_not_taken_for_the_inner_one
    assert_raises(Late) { Idempotency::Limit.within(0.05, Late) { Idempotency::Limit.within(600, IOError) { sleep } } }
    assert_raises(IOError) { Idempotency::Limit.within(600, Late) { Idempotency::Limit.within(0.05, IOError) { sleep } } }
  end

  def test_nothing_is_interrupted_behind_it
    200.times do
      Idempotency::Limit.within(0.002, Late) { sleep 0.002 }
    rescue Late
      nil
    end
    sleep 0.05
  end

  def test_a_forked_process_has_its_own_thread
    Idempotency::Limit.within(600, Late) { nil }
    child = fork { exit!(assert_raises(Late) { Idempotency::Limit.within(0.05, Late) { sleep } } ? 0 : 1) }
    assert_predicate Process.wait2(child)[1], :success?
  end
end

class PoolTest < Minitest::Test
  def test_a_failed_connection_leaves_its_place
    pool = Idempotency::Pool.new(size: 1) { raise IOError }
    2.times { assert_raises(IOError) { pool.take } }
  end

  def test_who_waits_gets_what_is_put_back
    pool = Idempotency::Pool.new(size: 1) { Object.new }
    taken = pool.take
    waiting = Thread.new { pool.take }
    Thread.pass until waiting.stop?
    pool.put(taken)
    assert_same taken, waiting.value
  end

  def test_who_waits_may_give_up
    pool = Idempotency::Pool.new(size: 1) { Object.new }
    taken = pool.take
    assert_raises(IOError) { Idempotency::Limit.within(0.05, IOError) { pool.take } }
    pool.forget(taken)
    assert pool.take
  end
end

class CallerTest < Minitest::Test
  Caller = Idempotency::Caller
  Response = Struct.new(:status, :headers, :body)
  QUICK = Caller::Pauses.new(base: 0.001, cap: 0.001, attempts: 4)

  def problem(word, status = 409, **headers)
    Response.new(status, { "Content-Type" => "application/problem+json", **headers },
                 JSON.generate(type: "/problems/idempotency/#{word}"))
  end

  def test_what_is_final
    final = [Response.new(201, {}), Response.new(303, {}), Response.new(422, {}), problem("mismatch", 422), problem("failed", 500),
             problem("exhausted", 503), problem("expired", 410), Response.new(503, { "Idempotent-Replayed" => "true" }),
             Response.new(503, { "idempotent-replayed" => "true" })]
    open = [Response.new(503, {}), Response.new(429, {}), problem("in-progress"), problem("unknown"), problem("retry-later", 503),
            problem("unavailable", 400), problem("handler-late", 503)]
    assert_equal [true] * final.size, final.map { |one| Caller.final?(one) }
    assert_equal [false] * open.size, open.map { |one| Caller.final?(one) }
  end

  def test_one_key_stored_first_for_all_sendings
    stored = []
    sent = []
    answers = [IOError.new("cut"), problem("in-progress"), Response.new(201, {})]
    Caller.call(store: ->(key) { stored << key }, pauses: QUICK, errors: [IOError]) do |field|
      sent << field.fetch("Idempotency-Key")
      answer = answers.shift
      answer.is_a?(Exception) ? raise(answer) : answer
    end
    assert_equal 1, stored.size
    assert_equal [%("#{stored[0]}")] * 3, sent
  end

  def test_it_gives_up_and_names_the_key
    error = assert_raises(Caller::NotFinal) { Caller.call(key: "mine", pauses: QUICK) { raise IOError, "cut" } }
    assert_equal ["mine", "cut"], [error.key, error.cause.message]
  end

  def test_other_errors_are_no_lost_answers
    assert_raises(ArgumentError) { Caller.call(errors: [IOError], pauses: QUICK) { raise ArgumentError } }
  end

  def test_retry_after
    assert_equal 7, Caller.retry_after(problem("in-progress", 409, "Retry-After" => "7"))
    now = Time.at(1_700_000_000)
    Time.stub(:now, now) { assert_equal 60, Caller.retry_after(problem("x", 409, "Retry-After" => (now + 60).httpdate)) }
    assert_equal 0, Caller.retry_after(problem("x", 409, "Retry-After" => "soon"))
    long = problem("in-progress", 409, "Retry-After" => "1000")
    assert_raises(Caller::NotFinal) { Caller.call(pauses: QUICK) { long } }
  end
end
