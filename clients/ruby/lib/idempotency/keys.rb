# frozen_string_literal: true

module Idempotency
  # The database and options that all routes of a service share, and two ways to make a route.
  class Keys
    def initialize(database, **common)
      @database = database
      @common = common
      Options.new(principal: BEARER, **common) # raises where one is wrong
    end

    def transactional(**options) = Route.new(@database, :transactional, Options.new(**@common, **options))

    def leased(**options) = Route.new(@database, :leased, Options.new(**@common, **options))
  end

  # Puts a route in front of a Rack application, or of a part of it: `use Idempotency::Middleware, keys.transactional`.
  Middleware = Struct.new(:app, :route) do
    def call(env) = Exchange.response(route.handle(Exchange.new(Rack::Request.new(env), &app.method(:call))))
  end

  # A `principal`: the token of `Authorization: Bearer TOKEN`, for services whose tokens are checked before.
  BEARER = lambda do |request|
    request.env["HTTP_AUTHORIZATION"].to_s[%r{\A[ \t]*bearer +([A-Za-z0-9._~+/-]+=*)[ \t]*\z}i, 1]
  end
end
