# frozen_string_literal: true

require "rails_helper"
require "action_view/testing/resolvers"

Shop.initialize!

class ApplicationRecord < ActiveRecord::Base
  self.abstract_class = true
end

class Payment < ApplicationRecord
  self.table_name = "payment"
  COMMITTED = Queue.new
  validates :amount, numericality: true
  REFUSED = Queue.new
  UNDONE = Queue.new
  after_rollback { UNDONE << id }
  # As of a table that others use as well.
  after_commit { self.class.connection.execute("DO $$ BEGIN RAISE SQLSTATE '40P01'; END $$") if !REFUSED.empty? && REFUSED.pop }
  after_commit { COMMITTED << [id, account, Database.connect { |other| other.exec("SELECT 1 FROM payment WHERE id = #{id}").ntuples }] }
end

class Refused < StandardError; end

class PaymentsController < ActionController::API
  include ActionController::Cookies
  include Idempotency::Controller
  idempotency principal: Idempotency::BEARER
  ACTIONS = %i[create nested joined locked looked checked explicit hidden streamed missing parameter refused late ends threaded cookie twice broken].freeze
  idempotent(*ACTIONS)
  idempotent :transfer, :conflicting, kind: :leased, lease: 30
  idempotent :passing, missing_key: :pass
  idempotent :hurried, handler_timeout: 0.2
  rescue_from(ActiveRecord::Deadlocked) { render json: { busy: true }, status: :conflict }
  rescue_from(Refused) { render json: { refused: true }, status: :payment_required }
  RUNS = Hash.new(0)
  ANSWERED = Queue.new

  def create
    payment = pay
    render json: { id: payment.id, amount: payment.amount }, status: :created
  end

  # Its own transaction is rolled back, though it is within ours.
  def nested
    Payment.transaction(requires_new: true) { pay && raise(ActiveRecord::Rollback) }
    render json: { paid: false }
  end

  def joined
    Payment.transaction { pay && raise(ActiveRecord::Rollback) }
    Payment.transaction { pay }
    render json: { paid: false }
  end

  def locked
    pay.with_lock { pay && raise(ActiveRecord::Rollback) }
    render json: { paid: 1 }
  end

  def looked = render(json: Payment.find_by(id: 0))

  # COMMIT fails.
  def checked
    pay
    Payment.connection.execute("INSERT INTO child (payment) VALUES (0)")
    head :created
  end

  def passing
    Payment.create!(account: idempotency_claim.principal, amount: 1)
    head :created
  end

  def conflicting = Payment.connection.execute("DO $$ BEGIN RAISE SQLSTATE '40P01'; END $$")

  alias busy conflicting

  def explicit
    pay
    raise ActiveRecord::Rollback
  end

  def hidden
    pay
    begin
      Payment.connection.execute("SELECT 1/0")
    rescue ActiveRecord::StatementInvalid
      nil
    end
    head :created
  end

  def streamed
    pay
    self.status = 201
    self.response_body = Enumerator.new { |body| 3.times { |n| body << "#{n} #{Payment.where(account: idempotency_claim.principal).count}\n" } }
  end

  def missing
    pay
    Payment.find(-1)
  end

  def parameter
    pay
    params.require(:absent)
  end

  def refused
    pay
    raise Refused
  end

  def hurried
    pay
    sleep
  end

  def late
    claim = idempotency_claim
    Thread.new { ANSWERED.pop && claim.client.execute("INSERT INTO payment (account) VALUES ('late')") }.tap { |one| one.report_on_exception = false }
    render json: { amount: pay.amount }
  end

  def ends
    pay
    Payment.connection.commit_transaction
    head :created
  end

  def threaded
    Thread.new { Payment.create!(account: "threaded", amount: 1) }.join
    pay
    raise "too late"
  end

  def cookie
    cookies[:seen] = "1"
    head :created
  end

  # The first run fails to serialize. The body and the answer's fields are as new in the second.
  def twice
    response.set_header("X-Run", (RUNS[idempotency_claim.key] += 1).to_s)
    response.set_header("X-First", "1") if RUNS[idempotency_claim.key] == 1
    pay
    Payment.connection.execute("DO $$ BEGIN RAISE SQLSTATE '40001'; END $$") if RUNS[idempotency_claim.key] == 1
    head :created
  end

  def broken
    pay
    Payment.connection.raw_connection.finish
    head :created
  end

  def transfer
    charge = idempotency_claim.step(:charge) { { "id" => "ch_#{params[:amount]}" } }
    Payment.create!(account: idempotency_claim.principal, amount: params[:amount])
    render json: charge, status: :created
  end

  def open
    render json: { claim: idempotency_claim.inspect }
  end

  private

  def pay
    Payment.create!(account: idempotency_claim.principal, amount: params[:amount])
  end
end

# `creat` is no action, so `create` is not protected.
class MistakenController < ActionController::API
  include Idempotency::Controller
  idempotent :creat, :handled, principal: Idempotency::BEARER

  def create
    Payment.create!(account: request.headers["Authorization"].split.last, amount: 1)
  end

  def handled = head(:created)
end

module Payable
  extend ActiveSupport::Concern
  include Idempotency::Controller
  included { idempotent :create, principal: Idempotency::BEARER }
end

class ConcernedController < ActionController::API
  include Payable

  def create = render(json: Payment.create!(account: idempotency_claim.principal, amount: 1), status: :created)
end

# Actions of those derived from it.
class CommonController < ActionController::Base
  include Idempotency::Controller
  idempotent :create, :destroy, principal: Idempotency::BEARER
  skip_forgery_protection
end

class DerivedController < CommonController
  idempotent :templated, :absent, :conflicting, principal: Idempotency::BEARER
  RUNS = Queue.new
  prepend_view_path ActionView::FixtureResolver.new("derived/templated.html.erb" => "from a template",
                                                       "derived/absent.html.erb" => "<% Payment.find(-1) %>")

  def create = head(:created)

  def conflicting
    RUNS << true
    render inline: "<% Payment.connection.execute(%(DO $$ BEGIN RAISE SQLSTATE '40001'; END $$)) if DerivedController::RUNS.size == 1 %>ok"
  end
end

Shop.routes.draw do
  %w[concerned#create mistaken#create mistaken#handled derived#create derived#absent derived#templated derived#conflicting].each { |action| post "/#{action.tr("#", "/")}", to: action }
  PaymentsController::ACTIONS.each { |name| post "/accounts/:id/#{name}", to: "payments##{name}" }
  post "/transfers", to: "payments#transfer"
  %w[passing conflicting busy].each { |name| post "/#{name}", to: "payments##{name}" }
  post "/hurried", to: "payments#hurried"
  post "/open", to: "payments#open"
end

class RailsTest < Minitest::Test
  include RailsSupport

  def test_executed_and_replayed
    first, again = Array.new(2) { post("/accounts/1/create") }
    assert_equal 201, first.status
    assert_replayed first, again
    assert_equal 1, payments
    assert_equal [["POST /accounts/:id/create"]], sql("SELECT scope FROM idempotency.records WHERE key = $1", @key)
    assert_equal 422, post("/accounts/1/create", { amount: 6 }).status
    assert_equal 422, post("/accounts/2/create").status
  end

  def test_after_commit_runs_after_the_commit
    Payment::COMMITTED.clear
    post("/accounts/1/create", { amount: "five" })
    assert_empty Payment::COMMITTED
    post("/accounts/1/create", key: "#{@key}-2")
    assert_equal [@account, 1], Payment::COMMITTED.pop.drop(1)
  end

  def test_a_rollback_of_the_handlers_own_transaction
    2.times { assert_equal '{"paid":false}', post("/accounts/1/nested").body }
    assert_equal 0, payments
  end

  def test_a_rollback_without_requires_new_does_the_same
    2.times { assert_equal '{"paid":false}', post("/accounts/1/joined").body }
    assert_equal 1, payments
  end

  def test_a_rollback_in_a_lock_does_the_same
    2.times { assert_equal '{"paid":1}', post("/accounts/1/locked").body }
    assert_equal 1, payments
  end

  # The connection keeps what it has prepared.
  def test_a_table_that_has_changed_since_a_statement_was_prepared
    assert_equal 200, post("/accounts/1/looked").status
    sql("ALTER TABLE payment ADD COLUMN note text")
    2.times { |number| assert_equal 200, post("/accounts/1/looked", key: "#{@key}-#{number}").status }
  ensure
    sql("ALTER TABLE payment DROP COLUMN note")
  end

  def test_an_error_of_after_commit_does_not_repeat_the_work
    Payment::REFUSED << true
    assert_equal 500, post("/passing", key: nil).status
    assert_equal 1, payments
    Payment::REFUSED << true
    first, again = Array.new(2) { post("/accounts/1/create") }
    assert_equal [500, 201, "true", 2], [first.status, again.status, again["Idempotent-Replayed"], payments]
  end

  def test_a_commit_that_fails_tells_the_records
    sql("CREATE TABLE child (payment bigint REFERENCES payment DEFERRABLE INITIALLY DEFERRED)")
    Payment::UNDONE.clear
    _, complained = capture_subprocess_io { assert_equal 500, post("/accounts/1/checked").status }
    assert_equal [1, 0, nil], [Payment::UNDONE.size, payments, record], complained
  ensure
    sql("DROP TABLE child")
  end

  def test_a_rollback_outside_of_a_transaction_is_an_error
    assert_equal 500, post("/accounts/1/explicit").status
    assert_equal [0, nil], [payments, record]
  end

  def test_a_hidden_error
    assert_equal 500, post("/accounts/1/hidden").status
    assert_equal [0, nil], [payments, record]
  end

  def test_a_streamed_body_runs_within_the_transaction
    first, again = Array.new(2) { post("/accounts/1/streamed") }
    assert_equal "0 1\n1 1\n2 1\n", first.body
    assert_replayed first, again
    assert_equal 1, payments
  end

  def test_statuses_that_rails_gives_to_exceptions
    { missing: 404, parameter: 400, refused: 402 }.each do |action, status|
      first, again = Array.new(2) { post("/accounts/1/#{action}", key: "#{@key}-#{action}") }
      assert_equal status, first.status
      assert_replayed first, again
      assert_equal 0, payments
    end
  end

  # As in Rack 3.1, whose names are in lower case.
  def test_a_status_without_a_page
    request = ActionDispatch::Request.new(Rack::MockRequest.env_for("/"))
    %w[X-Cascade x-cascade].each do |name|
      pages = ->(_) { [404, { name => "pass" }, ["no page"]] }
      page = Rails.application.config.stub(:exceptions_app, -> { pages }) { Idempotency::Controller::Routes.page(request, IOError.new, 404) }
      assert_equal [404, []], page.values_at(0, 2)
    end
  end

  def test_invalid_records_are_errors_of_422
    first, again = Array.new(2) { post("/accounts/1/create", { amount: "five" }) }
    assert_equal 422, first.status
    assert_replayed first, again
  end

  def test_a_late_handler
    assert_equal 503, post("/hurried").status
    assert_equal [0, nil], [payments, record]
    assert_equal 201, post("/accounts/1/create").status
  end

  def test_a_late_write
    assert_equal 200, post("/accounts/1/late").status
    PaymentsController::ANSWERED << true
    sleep 0.3
    assert_equal [["0"]], sql("SELECT count(*) FROM payment WHERE account = 'late'")
  end

  def test_a_handler_that_commits
    assert_equal 500, post("/accounts/1/ends").status
    assert_equal [0, nil], [payments, record]
    assert_equal 201, post("/accounts/1/create").status
  end

  def test_another_threads_connection_is_not_ours
    assert_equal 500, post("/accounts/1/threaded").status
    assert_equal 0, payments
    assert_equal [["1"]], sql("SELECT count(*) FROM payment WHERE account = 'threaded'")
  end

  def test_cookies_are_sent_and_not_replayed
    first, again = Array.new(2) { post("/accounts/1/cookie") }
    assert_equal ["seen=1; path=/; samesite=lax", nil], [first["Set-Cookie"].downcase, again["Set-Cookie"]]
  end

  def test_a_second_run_begins_anew
    answer = post("/accounts/1/twice")
    assert_equal [201, "2", nil], [answer.status, answer["X-Run"], answer["X-First"]]
    assert_equal 1, payments
  end

  def test_a_conflict_in_a_template
    assert_equal [200, "ok"], post("/derived/conflicting").then { |answer| [answer.status, answer.body] }
    assert_equal 2, DerivedController::RUNS.size
  end

  def test_a_lost_connection_is_replaced
    assert_equal 503, post("/accounts/1/broken").status
    assert_equal 201, post("/accounts/1/create").status
  end

  # The server answers when the test has ended. Nothing waits for that, not even to deallocate prepared statements.
  def test_a_late_statement_ends_in_time
    Database.connect do |holder|
      holder.exec("SELECT pg_advisory_lock(42)")
      database = Idempotency::ActiveRecord.new
      late = ["SELECT pg_advisory_lock(42)", []]
      in_transaction = proc do
        transaction = database.open(nil)
        transaction.client.execute(late.first)
      ensure
        transaction.rollback
      end
      at_begin = proc do
        Payment.connection.define_singleton_method(:begin_db_transaction) { execute(late.first) }
        database.open(nil)
      end
      [proc { database.statement(*late) }, in_transaction, at_begin].each { |way| assert_late(&way) }
    end
  end

  # It is in the middle of the transaction.
  def test_a_connection_whose_rollback_is_interrupted_serves_no_other_request
    thread = Thread.new do
      transaction = Idempotency::ActiveRecord.new.open(nil)
      transaction.client.define_singleton_method(:rollback_db_transaction) { sleep }
      assert_raises(Idempotency::DatabaseLate) do
        Idempotency::Limit.within(0.05, Idempotency::DatabaseLate) { transaction.rollback }
      end
      Payment.connection_pool.connections.count { |one| one.equal?(transaction.client) }
    end
    assert_equal 0, Timeout.timeout(60) { thread.value }
  end

  # Rails 7.1 and newer would connect again, whatever time that takes.
  def test_the_end_of_a_transaction_asks_for_no_connection
    transaction = Idempotency::ActiveRecord.new.open(nil)
    transaction.client.stub(:raw_connection, -> { flunk }) { transaction.rollback }
    assert_equal 0, Payment.connection.open_transactions
  end

  def assert_late(&way)
    thread = Thread.new do
      Payment.find_by(id: 0) # a prepared statement
      Idempotency::Limit.within(0.2, Idempotency::DatabaseLate, &way)
    end
    thread.report_on_exception = false
    assert_raises(Idempotency::DatabaseLate) { thread.join(60) }
  end

  def test_leased
    first, again = Array.new(2) { post("/transfers") }
    assert_equal '{"id":"ch_5"}', first.body
    assert_replayed first, again
    assert_equal 1, payments
  end

  def test_other_actions_have_no_claim
    assert_equal '{"claim":"nil"}', post("/open", key: nil).body
    assert_equal [400, 401], [post("/transfers", key: nil).status, post("/transfers", "HTTP_AUTHORIZATION" => "").status]
  end

  # Rails' tests run in a transaction that is rolled back.
  def test_within_the_transaction_of_a_test
    Payment.connection.begin_transaction(joinable: false)
    first, again = Array.new(2) { post("/accounts/1/create") }
    assert_equal 201, first.status
    assert_replayed first, again
    assert_equal 1, Payment.where(account: @account).count
    Payment.connection.rollback_transaction
    assert_equal [0, nil], [payments, record]
  end

  def test_within_another_transaction_it_is_refused
    Payment.transaction { assert_equal 500, post("/accounts/1/create").status }
    assert_equal 0, payments
  end

  def test_mistakes_are_refused_where_the_route_is_declared
    controller = Class.new(PaymentsController)
    assert_raises(ArgumentError) { controller.idempotent(:create, scpoe: "x") }
    late = Class.new(PaymentsController) { idempotent :open }
    assert_includes assert_raises(ArgumentError) { late.idempotency(lease: 5) }.message, "before `idempotent`"
    assert_raises(ArgumentError) { controller.idempotent(:create, kind: :lease) }
    assert_raises(ArgumentError) { controller.idempotency(lease: "30") }
    assert_raises(ArgumentError) { Class.new(ActionController::API) { include Idempotency::Controller }.idempotent(:create) }
    live = Class.new(PaymentsController) { include ActionController::Live }
    assert_raises(ArgumentError) { live.idempotent(:create) }
    assert_raises(ArgumentError) { live.action(:create).call(Rack::MockRequest.env_for("/payments", method: "POST")) }
    assert_raises(ArgumentError) { controller.idempotent(principal: ->(request) { request.env["tenant"] }) }
    refute_same controller.idempotent(:open), PaymentsController.idempotent_routes
    refute PaymentsController.idempotent_routes.key?("open")
  end

  def test_an_action_that_is_none_is_refused_before_any_action_runs
    2.times { assert_equal [500, 500], [post("/mistaken/create").status, post("/mistaken/handled").status] }
    assert_equal 0, payments
    error = assert_raises(Idempotency::Error) { MistakenController.dispatch("create", nil, nil) }
    assert_includes error.message, "MistakenController has no action `creat`"
  end

  def test_an_action_as_an_endpoint_of_rack
    first, again = Array.new(2) do
      fields = { "HTTP_AUTHORIZATION" => "Bearer #{@account}", "HTTP_IDEMPOTENCY_KEY" => @key, "CONTENT_TYPE" => "application/json" }
      Rack::MockRequest.new(PaymentsController.action(:create)).post("/endpoint", input: '{"amount":5}', **fields)
    end
    assert_equal 201, first.status
    assert_replayed first, again
  end

  # Nothing runs them again.
  def test_rescue_from_in_actions_that_hold_no_transaction
    { "/busy" => nil, "/conflicting" => @key }.each do |path, key|
      assert_equal [409, '{"busy":true}'], post(path, key:).then { |answer| [answer.status, answer.body] }
    end
  end

  def test_a_concern
    first, again = Array.new(2) { post("/concerned/create") }
    assert_equal [201, 1], [first.status, payments]
    assert_replayed first, again
  end

  def test_no_actions_are_added
    assert_empty ConcernedController.action_methods.grep(/idempot|rescue/)
  end

  def test_a_status_of_an_error_in_a_template
    first, again = Array.new(2) { post("/derived/absent") }
    assert_equal 404, first.status
    assert_replayed first, again
  end

  def test_actions_of_a_derived_controller_and_of_a_template
    assert_equal 201, post("/derived/create").status
    assert_equal [200, "from a template"], post("/derived/templated").then { |answer| [answer.status, answer.body] }
  end

  def test_a_derived_controller_that_includes_it_again_is_protected_as_before
    derived = Class.new(PaymentsController) { include Idempotency::Controller }
    first, again = Array.new(2) do
      fields = { "HTTP_AUTHORIZATION" => "Bearer #{@account}", "HTTP_IDEMPOTENCY_KEY" => @key, "CONTENT_TYPE" => "application/json" }
      Rack::MockRequest.new(derived.action(:create)).post("/endpoint", input: '{"amount":5}', **fields)
    end
    assert_equal [201, 1], [first.status, payments]
    assert_replayed first, again
    assert_same PaymentsController.idempotency_keys, derived.idempotency_keys
  end

  # Of an error, after the ROLLBACK: the transaction may have failed.
  def test_a_verdict_may_ask_the_database
    work = lambda do |claim|
      claim.client.execute("SELECT 1/0")
    rescue ActiveRecord::StatementInvalid
      raise Idempotency::Rejection, 409
    end
    settings = { verdict: ->(_) { Payment.exists?(0) ? :free : :keep } }
    first, again = Array.new(2) { Idempotency.transactionally(Idempotency::ActiveRecord.new, key: @key, settings:, &work) }
    assert_equal [["executed", 409], ["replay", 409]], [first, again].map { |one| [one.outcome, one.answer.status] }
  end

  def test_duplicates_at_the_same_time
    answers = Array.new(20) { Thread.new { post("/accounts/1/create") } }.map(&:value)
    assert_equal 1, payments
    assert_empty answers.map(&:status) - [201, 409]
  end
end
