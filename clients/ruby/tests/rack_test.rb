# frozen_string_literal: true

require "helper"

class RackTest < Minitest::Test
  include Support

  # A body that must not be read.
  class Sealed
    def method_missing(name, *) = raise("the body was touched: #{name}")
    def respond_to_missing?(*) = true
  end

  def app(kind = :transactional, **options, &handler)
    keys = Idempotency::Keys.new(Idempotency::Pg.new { Database.connect }, principal: Idempotency::BEARER, **options)
    handler ||= ->(env) { [201, { "X-Amount" => env["rack.input"].read }, ["paid"]] }
    Idempotency::Middleware.new(handler, keys.public_send(kind))
  end

  def env(body = "{}", **fields)
    Rack::MockRequest.env_for("/payments", method: "POST", input: body).merge(
      { "HTTP_AUTHORIZATION" => "Bearer #{@account}", "HTTP_IDEMPOTENCY_KEY" => @key, "CONTENT_TYPE" => "application/json" }, fields
    )
  end

  # Rack 2 keeps the letter case of names, Rack 3 has them in lower case.
  def fields_of(app, request)
    Rack::MockResponse.new(*app.call(request)).headers
  end

  def test_nothing_is_read_before_it_is_needed
    {
      401 => { "HTTP_AUTHORIZATION" => "" }, 400 => { "HTTP_IDEMPOTENCY_KEY" => "a, b" },
      413 => { "CONTENT_LENGTH" => "2000000" }, 415 => { "HTTP_CONTENT_ENCODING" => "br" }
    }.each { |status, fields| assert_equal status, app.call(env("{}", "rack.input" => Sealed.new, **fields))[0] }
  end

  # An object would be another principal in each request.
  def test_a_principal_is_a_string_or_an_integer
    answer = ->(principal) { app(principal: ->(_) { principal }).call(env)[0] }
    assert_equal [401, 401, 401], [nil, false, ""].map(&answer)
    [Object.new, true, :me, 1.5].each do |principal|
      error = assert_raises(Idempotency::Error, principal.class) { answer.call(principal) }
      assert_includes error.message, "`principal` has to be a string or an integer, and is of #{principal.class}"
    end
    assert_nil record
    assert_equal [201, 201], ["me", 7].map(&answer)
    assert_equal [["7"], ["me"]], sql("SELECT principal FROM idempotency.records WHERE key = $1 ORDER BY 1", @key)
  end

  def test_no_more_is_read_than_the_limit_needs
    endless = Object.new
    read = 0
    endless.define_singleton_method(:read) { |size| (read += size) && ("x" * size) }
    status, = app(max_request_bytes: 1000).call(env.tap { |one| one.delete("CONTENT_LENGTH") }.merge("rack.input" => endless))
    assert_equal [413, 1001], [status, read]
  end

  def test_a_body_ends_at_its_length
    assert_equal "{}", fields_of(app, env('{}POST /next', "CONTENT_LENGTH" => "2"))["X-Amount"]
    assert_equal 400, app.call(env("{}", "CONTENT_LENGTH" => "3"))[0]
    assert_equal 400, app.call(env("{}", "CONTENT_LENGTH" => "+2"))[0]
  end

  # As with the client in Go.
  def test_fields_that_cannot_be_stored_are_made_so_before_they_are_sent
    fields = { "X-Name" => "caf\xE9".b, "X-Other" => "café".b, "X-Zero" => "a\0b", "X-Text" => "caf\xE9" }
    %i[transactional leased].each do |kind|
      runs = 0
      app = app(kind) { |_| [201, fields, ["p"]].tap { runs += 1 } }
      first, again = Array.new(2) { fields_of(app, env("{}", "HTTP_IDEMPOTENCY_KEY" => "#{@key}-#{kind}")) }
      assert_equal ["caf\uFFFD", "café", "a b", "caf\uFFFD"], fields.keys.map { |name| first[name] }
      fields.each_key { |name| assert_equal first[name], again[name] }
      assert_equal [1, "true"], [runs, again["Idempotent-Replayed"]]
    end
  end

  # Wherever the pieces in which it is read are cut.
  def test_a_body_of_several_members
    [*1..30, 1000].each do |before|
      first = Zlib.gzip(SecureRandom.bytes(65_536 - before - 23), level: 0)
      body = first + Zlib.gzip("abc")
      whole = Zlib.gunzip(first) + "abc"
      assert_equal whole, Idempotency::Body.read(env(body, "HTTP_CONTENT_ENCODING" => "gzip"), 1 << 20), before
    end
    many = Zlib.gzip("") * 10_000
    assert_equal "", Idempotency::Body.read(env(many, "HTTP_CONTENT_ENCODING" => "gzip"), 1 << 20)
    assert_equal 400, app.call(env(Zlib.gzip("{}") + "rest", "HTTP_CONTENT_ENCODING" => "gzip"))[0]
  end

  def test_a_handler_cannot_take_over_the_connection
    [[201, { "rack.hijack" => ->(_io) {} }, []], [201, {}, ->(stream) { stream.write("x") }]].each do |answer|
      assert_raises(Idempotency::Error) { app { |_| answer }.call(env) }
      assert_nil record
    end
    looking = app { |one| [201, { "X-Hijack" => one.keys.grep(/hijack/).join }, []] }
    assert_equal "", fields_of(looking, env("{}", "rack.hijack" => -> {}))["X-Hijack"]
  end

  def test_a_body_is_closed_and_its_failure_is_the_handlers
    closed = 0
    body = Object.new
    body.define_singleton_method(:each) { |&_| raise IOError, "broken" }
    body.define_singleton_method(:close) { closed += 1 }
    assert_raises(IOError) { app { |_| [201, {}, body] }.call(env) }
    assert_equal [1, nil], [closed, record]
  end

  def test_rack_3_has_names_in_lower_case_and_arrays
    answer = Idempotency::Answer.new(status: 201, headers: [%w[X-One a], %w[x-one b], %w[Trailer c]], body: "ok")
    Rack.stub(:release, "2.2.4") do
      assert_equal({ "X-One" => "a\nb", "Content-Length" => "2" }, Idempotency::Exchange.response(answer)[1])
    end
    Rack.stub(:release, "3.0") do
      assert_equal({ "x-one" => %w[a b], "content-length" => "2" }, Idempotency::Exchange.response(answer)[1])
    end
  end

  def test_a_hook_that_fails_does_not_fail_the_request
    _, complained = capture_io { assert_equal 201, app(on_execute: ->(_) { raise "no" }).call(env)[0] }
    assert_includes complained, "a hook has failed"
  end

  def test_a_loss_that_is_noticed_at_the_end_of_a_claim_is_told
    [->(_) { raise "no" }, ->(_) { [503, {}, []] }, ->(_) { [201, {}, []] }].each_with_index do |ending, number|
      told = []
      key = "#{@key}-#{number}"
      app = app(:leased, on_lease_lost: ->(event) { told << [event.key, event.outcome] }) do |env|
        sql("SELECT idem_resolve($1, 'release', scope => 'POST /payments', principal => $2, even_if_running => true)", key, @account)
        ending.call(env)
      end
      assert_equal 409, app.call(env("{}", "HTTP_IDEMPOTENCY_KEY" => key))[0]
      assert_equal [[key, "lease_lost"]], told
    end
  end

  def test_the_cause_of_unavailable_is_said
    away = Idempotency::Keys.new(Idempotency::Pg.new { PG.connect(port: 1, host: "127.0.0.1") }, principal: Idempotency::BEARER, attempts: 1)
    app = Idempotency::Middleware.new(->(_) { flunk }, away.transactional)
    _, complained = capture_io { assert_equal 503, app.call(env)[0] }
    assert_match(/\Aidempotency: unavailable: .*port 1/, complained)
    slow = Idempotency::Keys.new(Idempotency::Pg.new { sleep }, principal: Idempotency::BEARER, attempts: 1, database_timeout: 0.05)
    app = Idempotency::Middleware.new(->(_) { flunk }, slow.transactional)
    _, complained = capture_io { assert_equal 503, app.call(env)[0] }
    assert_equal "idempotency: unavailable: no end within 0.05 s\n", complained
  end

  def test_settings_that_cannot_be_read_are_not_said
    ["password=a secret", "password=a secret=b", "password='secret", "postgresql://u:secret/b@h/d", "postgresql://u:secret%@h/d"].each do |settings|
      connect = proc do
        PG.connect(settings)
      rescue PG::Error
        raise Idempotency::DatabaseAway # as ActiveRecord's error is one
      end
      away = Idempotency::Keys.new(Idempotency::Pg.new(&connect), principal: Idempotency::BEARER, attempts: 1)
      app = Idempotency::Middleware.new(->(_) { flunk }, away.transactional)
      _, complained = capture_io { assert_equal 503, app.call(env)[0] }
      assert_equal "idempotency: unavailable: the connection settings cannot be read\n", complained
    end
  end

  def test_an_answer_to_head_has_the_length_that_the_application_says
    app = app { |_| [200, { "Content-Length" => "5" }, []] }
    assert_equal "5", fields_of(app, env("", "REQUEST_METHOD" => "HEAD"))["Content-Length"]
  end

  def test_safe_methods_pass
    assert_equal 201, app.call(env("", "REQUEST_METHOD" => "GET").tap { |one| one.delete("HTTP_IDEMPOTENCY_KEY") })[0]
  end
end
