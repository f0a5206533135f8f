# frozen_string_literal: true

# The handler of the conformance suite, its hooks and its own connections, whatever runs it.

require "base64"
require "idempotency-postgres"

# What the suite tells a handler to do.
class Service
  POOLED = ENV.key?("POOLED")
  OTHERS = Idempotency::Pool.new(size: 40) do
    PG.connect(application_name: ENV.fetch("PGAPPNAME", "example"), connect_timeout: 2)
  end
  EFFECT = "INSERT INTO effect (principal, key, note) VALUES ($1, $2, $3)"
  HOOK = "INSERT INTO hook (name, scope, key, attempt, outcome) VALUES ($1, $2, $3, $4, $5)"

  # Of a payment gateway, whose codes have five characters.
  class Stranger < StandardError
    def code
      "40004"
    end
    alias sqlstate code
  end

  def self.hook(name)
    lambda do |event|
      next if event.outcome == "unavailable" # there is no database to tell

      aside(HOOK, [name, event.scope, event.key, event.attempt, event.outcome])
    end
  end

  # On a connection of its own.
  def self.aside(sql, values = [])
    connection = take
    connection.exec_params(sql, values)
  ensure
    release(connection) if connection
  end

  # The suite ends connections that are idle.
  def self.take
    loop do
      connection = OTHERS.take
      return connection unless Idempotency::Link.new(connection).gone?

      OTHERS.forget(connection)
    end
  end

  def self.release(connection)
    connection.status == PG::CONNECTION_OK ? OTHERS.put(connection) : OTHERS.forget(connection)
  end

  # BENCH: for bench/clients, without the suite's hooks and with the route /bare.
  BENCH = ENV.key?("BENCH")
  HOOKS = {
    database_timeout: 2, on_execute: hook("execute"), on_replay: hook("replay"), on_refusal: hook("refusal"),
    on_lease_lost: hook("lease_lost")
  }.freeze
  COMMON = { principal: Idempotency::BEARER, **(BENCH ? {} : HOOKS) }.freeze

  verdict = ->(answer) { answer["X-Verdict"] }
  ROUTES = {
    transactional: {}, leased: { lease: 2 }, uncertain: { lease: 2 },
    generate: { missing_key: :generate }, derive: { missing_key: :derive, window: 2 }, pass: { missing_key: :pass },
    configured: {
      statuses: { in_progress: 425, mismatch: 400, unavailable: 500 }, key_header: "X-Request-Key",
      replay_header: "X-Replay", echo_key: true, exclude: ["ts"], keep: ->(_status) { true }, ttl: 1
    },
    small: { max_request_bytes: 1000, max_answer_bytes: 1000 },
    omit: { max_answer_bytes: 1000, omit_large_answers: true },
    unprotected: { unprotected_without_database: true }, streamed: {},
    judged: { verdict: }, judged_leased: { verdict:, lease: 2 },
    impatient: { handler_timeout: 1 }, patient: { wait: 4 }
  }.freeze
  LEASED = %i[leased uncertain judged_leased].freeze
  RUNS = Hash.new(0)

  # The subclass says how to use its database: `calls` by name, of which each runs a statement.
  def initialize(claim)
    @claim = claim
  end

  # Status, fields, body.
  def answer(body, content_type)
    order = JSON.parse(body) if !body.empty? && content_type.to_s.start_with?("application/json")
    return work(order) if order.is_a?(Hash)

    effect("raw")
    [200, content_type ? [["Content-Type", content_type]] : [], body]
  end

  private

  def work(order)
    gate(order["gate"]) if order["gate"]
    effect(order["effect"]) if order["effect"]
    @claim.unknown(*order["unknown"]) if order["unknown"]
    commit(order["commit"]) if order["commit"]
    hide_error(order["hide_error"]) if order["hide_error"]
    fail_to_serialize(order["serialization_failures"]) if order["serialization_failures"]
    hang if order["hang"]
    sleep if order["never"]
    idle(order["idle"]) if order["idle"]
    Thread.new { late(order["late"]) } if order["late"]
    fail_as(order)
    exit!(3) if order["exit"]
    body = Base64.decode64(order.fetch("body", "")) * order.fetch("repeat", 1)
    [order.fetch("status", 201), order.fetch("headers", []), body]
  end

  def fail_as(order)
    raise Stranger, "Connection closed" if order["stranger"]

    raise_status(order["raise"]) if order["raise"]
    raise Idempotency::NothingHappened, "nothing happened" if order["nothing_happened"]
    raise "thrown by the handler" if order["throw"]
  end

  def effect(note)
    return insert(note) if @claim.kind == :transactional && @claim.client
    return aside(note) if @claim.kind == :transactional

    @claim.step("effect") { aside(note) && nil } unless @claim.recovery_point == "effect"
  end

  def aside(note)
    self.class.aside(EFFECT, [@claim.principal, @claim.key.to_s, note])
  end

  def gate(number)
    self.class.aside("SELECT pg_advisory_lock_shared($1), pg_advisory_unlock_shared($1)", [number])
  end

  def commit(way)
    way == "driver" ? commits.values.first.call : commits.fetch(way).call
  end

  def hide_error(way)
    calls.fetch(way == true ? calls.keys.first : way).call("SELECT 1/0")
  rescue StandardError
    nil
  end

  def fail_to_serialize(times)
    run("DO $$ BEGIN RAISE SQLSTATE '40001'; END $$") if (RUNS[@claim.key] += 1) <= times
  end

  def hang
    @claim.wait_until_lost
    aside("lost")
  end

  def idle(milliseconds)
    run("SET LOCAL idle_in_transaction_session_timeout = #{Integer(milliseconds)}")
    sleep((milliseconds / 1000.0) + 1)
  end

  def late(note)
    sleep 0.3
    begin
      insert(note)
    rescue StandardError
      nil
    end
    aside("tried")
  end

  def raise_status(status)
    raise Idempotency::Rejection, status
  end

  def run(sql)
    calls.values.first.call(sql)
  end
end
