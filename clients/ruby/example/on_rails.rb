# frozen_string_literal: true

ENV["RAILS_ENV"] = "production"
require "rails"
require "action_controller/railtie"
require "active_record/railtie"
require "idempotency/rails"
require_relative "service"

options = {
  pool: 40, checkout_timeout: 2, connect_timeout: 2, prepared_statements: !Service::POOLED,
  application_name: ENV.fetch("PGAPPNAME", "example")
}
ENV["DATABASE_URL"] = "postgresql://#{ENV.fetch("PGUSER")}@#{ENV.fetch("PGHOST")}:#{ENV.fetch("PGPORT")}/" \
                      "#{ENV.fetch("PGDATABASE")}?#{URI.encode_www_form(options)}"

# The suite's service, on ActiveRecord's connection.
class RailsService < Service
  TESTS = ActiveRecord.version < Gem::Version.new("7.1") ? 1 : 0 # of the connection, before its first statement
  WAYS = {
    hide_error: %w[execute exec_query select_value raw], commit: %w[sql commit_db_transaction commit_transaction raw],
    waits: { execute: 5 + TESTS, replay: 3 + TESTS, leased: 3 }
  }.freeze

  private

  def insert(note)
    values = [@claim.principal, @claim.key.to_s, note].map { |value| @claim.client.quote(value) }
    @claim.client.execute("INSERT INTO effect (principal, key, note) VALUES (#{values.join(", ")})")
  end

  def calls
    client = @claim.client
    {
      "execute" => ->(sql) { client.execute(sql) }, "exec_query" => ->(sql) { client.exec_query(sql) },
      "select_value" => ->(sql) { client.select_value(sql) }, "raw" => ->(sql) { client.raw_connection.exec(sql) }
    }
  end

  def commits
    client = @claim.client
    { "commit_db_transaction" => -> { client.commit_db_transaction }, "sql" => -> { client.execute("COMMIT") },
      "commit_transaction" => -> { client.commit_transaction }, "raw" => -> { client.raw_connection.exec("COMMIT") } }
  end

  # Rails answers it by itself.
  def raise_status(status)
    raise ActiveRecord::RecordNotFound if status == 404

    super
  end
end

# Its routes are those of the suite.
class OrdersController < ActionController::API
  include Idempotency::Controller
  idempotency(**Service::COMMON)

  Service::ROUTES.each do |name, options|
    idempotent name, kind: Service::LEASED.include?(name) ? :leased : :transactional, **options
    define_method(name) do
      type = request.headers["CONTENT_TYPE"]
      status, fields, body = RailsService.new(idempotency_claim).answer(request.raw_post, type)
      fields.group_by(&:first).each { |key, pairs| response.set_header(key, pairs.map(&:last).join("\n")) }
      self.status = status
      self.response_body = name == :streamed ? body.scan(/.{1,100}/mn) : body
    end
  end

  def bare
    ActiveRecord::Base.transaction do
      note = ActiveRecord::Base.connection.quote(JSON.parse(request.raw_post).fetch("effect"))
      ActiveRecord::Base.connection.execute("INSERT INTO effect (principal, key, note) VALUES ('bench', '', #{note})")
    end
    head :created
  end

  def health
    render plain: "well"
  end

  def ways
    render json: RailsService::WAYS
  end
end

# The smallest application: without the middlewares that add fields of their own to each answer.
class ExampleApplication < Rails::Application
  config.load_defaults 6.1
  config.eager_load = false
  config.secret_key_base = "example"
  config.logger = Logger.new($stderr)
  config.log_level = :fatal
  config.hosts.clear
  config.action_dispatch.show_exceptions = true
  config.action_dispatch.default_headers = {}
  own = [Rack::Runtime, ActionDispatch::RequestId, Rack::ETag, Rack::ConditionalGet, Rack::Sendfile]
  own.each { |one| config.middleware.delete(one) }
  routes.append do
    Service::ROUTES.each_key { |name| post "/#{name}", to: "orders##{name}" }
    post "/bare", to: "orders#bare" if Service::BENCH
    get "/health", to: "orders#health"
    get "/ways", to: "orders#ways"
  end
end
ExampleApplication.initialize!
APP = ExampleApplication
