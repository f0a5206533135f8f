# frozen_string_literal: true

# What the README says is run as it stands there, but for the name of the database.

require "rails_helper"

Shop.initialize!

module Gateway
  class Down < StandardError; end

  class NoAnswer < StandardError
    alias reference message
  end

  def self.charge(amount, key:)
    case amount
    when 1 then raise Down
    when 2 then raise NoAnswer, "re_1"
    else { "id" => "ch_#{amount}", "key" => key }
    end
  end
end

class Payment < ActiveRecord::Base
  self.table_name = "payment"
end

module Readme
  TEXT = File.read(File.expand_path("../README.md", __dir__))
  ALL = TEXT.scan(/^## ([^\n]+)\n((?:(?!^## ).*\n)*)/).to_h { |heading, text| [heading, text.scan(/^```ruby\n(.*?)^```/m).flatten.map { |code| code.gsub('"shop"', Database::NAME.inspect) }] }
  BLOCKS = ALL.transform_values(&:first)
end

[Readme::BLOCKS["Rails"], Readme::BLOCKS["Leased claims"]].each { |code| eval(code, TOPLEVEL_BINDING) }

Shop.routes.draw do
  post "/payments", to: "payments#create"
  post "/transfers", to: "transfers#create"
end

class ReadmeTest < Minitest::Test
  include RailsSupport

  def database
    @database ||= Idempotency::Pg.new { Database.connect }
  end

  def test_rails
    first, again = Array.new(2) { post("/payments", "account" => @account) }
    assert_equal 201, first.status
    assert_replayed first, again
    assert_equal 1, payments
    assert_equal [401, 400], [post("/payments").status, post("/payments", key: nil, "account" => @account).status]
    assert_equal 400, post("/payments", {}, key: "#{@key}-2", "account" => @account).status
  end

  def test_leased_claims
    first, again = Array.new(2) { post("/transfers", "account" => @account) }
    assert_equal [201, '{"charge":"ch_5"}'], [first.status, first.body]
    assert_replayed first, again
    assert_equal 500, post("/transfers", { amount: 1 }, key: "#{@key}-1", "account" => @account).status
    assert_equal 202, post("/transfers", { amount: 2 }, key: "#{@key}-2", "account" => @account).status
    assert_equal %w[retryable unknown], [record("#{@key}-1"), record("#{@key}-2")]
  end

  def test_rack
    app = Rack::Builder.new_from_string(Readme::BLOCKS["Rack"])
    app = app.first if app.is_a?(Array)
    send = -> { Rack::MockRequest.new(app).post("/payments", input: '{"amount":5}', "CONTENT_TYPE" => "application/json", "HTTP_AUTHORIZATION" => "Bearer #{@account}", "HTTP_IDEMPOTENCY_KEY" => @key) }
    first, again = Array.new(2) { send.call }
    assert_equal [201, '{"paid":5}'], [first.status, first.body]
    assert_replayed first, again
    assert_equal 1, payments
  end

  def test_functions_and_messages
    run = -> { eval("#{Readme::BLOCKS["Functions and messages"]}; [result, applied]", binding) }
    (first, now), (again, later) = Array.new(2) { run.call }
    assert_equal %w[executed replay], [first.outcome, again.outcome]
    assert_equal ["invoiced", true, false], [again.answer.body, now, later]
    assert_equal [["99"]], sql("SELECT amount FROM payment WHERE account = 'o-1'")
  end

  def test_worker
    sql("SELECT idem_policy_set('webhooks', store_request => true)")
    Database.connect do |connection|
      connection.transaction do
        connection.exec_params("SELECT idem_begin($1, '{\"amount\": 7}', scope => 'webhooks', principal => $2)", [@key, @account])
        connection.exec_params("SELECT idem_fail($1, 'queued', retryable => true, scope => 'webhooks', principal => $2, retry_after => '0')", [@key, @account])
      end
    end
    child = fork do
      eval(Readme::BLOCKS["Worker"], TOPLEVEL_BINDING)
      exit!(0)
    ensure
      exit!(1)
    end
    eventually("the webhook is sent") { record == "completed" }
    Process.kill("TERM", child)
    assert_predicate Process.wait2(child)[1], :success?
    assert_equal [["7"]], sql("SELECT amount FROM payment WHERE account = $1", @account)
  end

  def test_worker_in_rails
    sql("SELECT idem_policy_set('receipts', store_request => true)")
    order = @key
    account = @account
    run, queue = Readme::ALL["Worker"].drop(1)
    eval(queue, binding)
    assert order && account
    child = fork do
      ActiveRecord::Base.establish_connection
      eval(run, TOPLEVEL_BINDING)
      exit!(0)
    ensure
      exit!(1)
    end
    eventually("the receipt is sent") { record("receipt-#{@key}") == "completed" }
    Process.kill("TERM", child)
    assert_predicate Process.wait2(child)[1], :success?
    assert_equal [["7"]], sql("SELECT amount FROM payment WHERE account = $1", @account)
  end

  # Callbacks are part of the action.
  def test_an_answer_of_a_callback_is_stored
    PaymentsController.before_action(only: :create) { head :forbidden if request.headers["X-No"] }
    first = post("/payments", "account" => @account, "HTTP_X_NO" => "1")
    again = post("/payments", "account" => @account)
    assert_equal [403, 403, "true"], [first.status, again.status, again["Idempotent-Replayed"]]
  end

  def test_a_role_of_its_own
    role = "app_#{SecureRandom.hex(4)}"
    sql("CREATE ROLE #{role}")
    sql("SELECT idem_grant('#{role}')")
    sql("GRANT ALL ON payment, payment_id_seq TO #{role}")
    own = Idempotency::Pg.new { Database.connect.tap { |one| one.exec("SET ROLE #{role}") } }
    result = Idempotency.transactionally(own, key: @key) { |claim| claim.client.exec("INSERT INTO payment (account) VALUES ('own')") && Idempotency::Answer.new(status: 201) }
    assert_equal "executed", result.outcome
  ensure
    sql("DROP OWNED BY #{role}")
    sql("DROP ROLE #{role}")
  end

  def test_other_methods_are_limited_as_well
    app = Rack::Builder.new_from_string(Readme::BLOCKS["Rack"])
    app = app.first if app.is_a?(Array)
    put = ->(body) { Rack::MockRequest.new(app).put("/payments", input: body, "HTTP_AUTHORIZATION" => "Bearer #{@account}").status }
    assert_equal [201, 413], [put.call('{"amount":5}'), put.call("x" * 1_048_577)]
  end

  def test_every_option_of_a_worker_is_in_the_table
    table = Readme::TEXT[/^## Worker\n.*?(?=^## )/m].scan(/^\| (`.*?) \|/).join.scan(/`(\w+)`/).flatten
    assert_equal Idempotency::Worker::Options::KNOWN.keys.map(&:to_s).sort, table.sort
  end

  def test_every_option_is_in_the_table
    table = Readme::TEXT[/^## Options\n.*?(?=^## )/m].scan(/^\| (`.*?) \|/).join.scan(/`(\w+)`/).flatten
    assert_equal Idempotency::Options::KNOWN.keys.map(&:to_s).sort, table.sort
  end

  def test_the_call
    service = lambda do |field|
      assert_match(/\A"[0-9a-f-]{36}"\z/, field["Idempotency-Key"])
      Struct.new(:code, :headers, :body).new("201", {}, "")
    end
    code = Readme::BLOCKS["Calling such a service"].sub(/^  Net::HTTP.*$/, "  service.call(field)")
    saved_key = nil
    stored = []
    save_key = ->(key) { stored << key }
    answer = eval("#{code}; answer", binding)
    assert_equal ["201", 1], [answer.code, stored.size]
    assert_nil saved_key
    assert save_key && service
  end
end
