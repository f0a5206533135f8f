# frozen_string_literal: true

require "rack"
require_relative "service"

# Of ruby-pg.
class PgService < Service
  WAYS = {
    hide_error: %w[exec exec_params query sync_exec prepare send_query transaction],
    commit: %w[sql transaction async_exec],
    waits: { execute: 3, replay: 1, leased: 3 }
  }.freeze

  private

  def insert(note)
    @claim.client.exec_params(EFFECT, [@claim.principal, @claim.key.to_s, note])
  end

  def calls
    client = @claim.client
    {
      "exec" => ->(sql) { client.exec(sql) }, "exec_params" => ->(sql) { client.exec_params(sql, []) },
      "query" => ->(sql) { client.query(sql) }, "sync_exec" => ->(sql) { client.sync_exec(sql) },
      "prepare" => ->(sql) { client.prepare("", sql) && client.exec_prepared("", []) },
      "send_query" => ->(sql) { client.send_query(sql) && client.get_last_result },
      "transaction" => ->(sql) { client.transaction { client.exec(sql) } }
    }
  end

  def commits
    client = @claim.client
    { "transaction" => -> { client.transaction { nil } }, "sql" => -> { client.exec("COMMIT") },
      "async_exec" => -> { client.async_exec("END") } }
  end
end

DATABASE = Idempotency::Pg.new(size: 10) do
  PG.connect(application_name: ENV.fetch("PGAPPNAME", "example"), connect_timeout: 2)
end
KEYS = Idempotency::Keys.new(DATABASE, **Service::COMMON)

handler = lambda do |env|
  status, fields, body = PgService.new(env["idempotency.claim"]).answer(env["rack.input"].read, env["CONTENT_TYPE"])
  headers = fields.group_by(&:first).transform_values { |pairs| pairs.map(&:last).join("\n") }
  [status, headers, env["PATH_INFO"] == "/streamed" ? body.scan(/.{1,100}/mn) : [body]]
end

bare = lambda do |env|
  values = ["bench", "", JSON.parse(env["rack.input"].read).fetch("effect")]
  connection = Service.take
  connection.transaction { connection.exec_params(Service::EFFECT, values) }
  Service.release(connection)
  [201, {}, []]
end

APP = Rack::Builder.new do
  map("/bare") { run bare } if Service::BENCH
  map("/health") { run ->(_env) { [200, {}, ["well"]] } }
  map("/ways") { run ->(_env) { [200, {}, [JSON.generate(PgService::WAYS)]] } }
  Service::ROUTES.each do |name, options|
    route = Service::LEASED.include?(name) ? KEYS.leased(**options) : KEYS.transactional(**options)
    map("/#{name}") do
      use Idempotency::Middleware, route
      run(name == :streamed ? ->(env) { handler.call(env.merge("PATH_INFO" => "/streamed")) } : handler)
    end
  end
end.to_app
