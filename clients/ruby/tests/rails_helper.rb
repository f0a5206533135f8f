# frozen_string_literal: true

require "helper"

ENV["RAILS_ENV"] = "production"
ENV["DATABASE_URL"] = "postgresql://#{ENV.fetch("PGUSER", "postgres")}@#{ENV.fetch("PGHOST", "127.0.0.1")}:#{ENV.fetch("PGPORT", "5432")}/" \
                      "#{Database::NAME}?pool=40"
require "rails"
require "action_controller/railtie"
require "active_record/railtie"
require "idempotency/rails"

# An application with Rails' own middlewares.
class Shop < Rails::Application
  config.load_defaults 6.1
  config.cache_classes = true
  config.eager_load = false
  config.secret_key_base = "test"
  config.logger = Logger.new($stderr)
  config.log_level = :fatal
  config.hosts.clear
  config.root = File.expand_path("../build/rails", __dir__)
end

module RailsSupport
  include Support

  def post(path, body = { amount: 5 }, key: @key, **fields)
    body = JSON.generate(body) unless body.is_a?(String)
    fields = { "CONTENT_TYPE" => "application/json", "HTTP_AUTHORIZATION" => "Bearer #{@account}", **fields }
    fields["HTTP_IDEMPOTENCY_KEY"] = %("#{key}") if key
    Rack::MockRequest.new(Shop).post(path, input: body, **fields)
  end

  def assert_replayed(first, again)
    assert_equal "true", again["Idempotent-Replayed"], again.body
    assert_equal [first.status, first.body], [again.status, again.body]
  end
end
