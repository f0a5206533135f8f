# frozen_string_literal: true

module Idempotency
  # The argument of hooks. `outcome`: execute, replay, lease_lost, or why the request was refused.
  Event = Struct.new(:scope, :key, :attempt, :outcome)

  # One route's protection: takes an exchange, and returns the answer to send. Each request has a copy of its own.
  class Route
    def initialize(database, kind, options)
      kinds = %i[transactional leased]
      raise ArgumentError, "idempotency: `kind` has to be one of #{kinds.join(", ")}" unless kinds.include?(kind)

      @database = database
      @leased = kind == :leased
      @options = options
      @problems = Problems.new(database, options)
    end

    def handle(exchange) = dup.answer(exchange)

    protected

    def answer(exchange)
      @exchange = exchange
      @scope = @options.scope || exchange.default_scope
      @principal = Request.name_of(@options.principal.call(exchange.request) || "")
      raise Problem, "unauthorized" if @principal.empty?

      field = exchange.header(@options.key_header)
      @key = field && Key.parse(field)
      field && @key.nil? ? refuse("bad_key") : with_body
    rescue DatabaseAway => error
      warn "idempotency: unavailable: #{Failures.reason_of(error)}"
      refuse("unavailable", 1)
    rescue Problem => problem
      problem.answer
    rescue HandlerLate
      Problem.new("handler_late").answer
    end

    private

    def with_body
      concerned = @options.concern?(@exchange.http_method)
      without_key = @options.missing_key if concerned && @key.nil?
      return refuse("missing_key") if without_key == :refuse

      @body = Body.read(@exchange.env, @options.max_request_bytes)
      @ours = %i[generate derive].include?(without_key)
      @key = Key.generate if without_key == :generate
      @request = identified(without_key == :derive ? @options.window : nil)
      concerned && without_key != :pass ? claimed : unprotected
    end

    def identified(derive)
      # Many libraries send the type without a body.
      json = Identity.text_of(@body) if !@body.empty? && Identity.json?(@exchange.content_type)
      fingerprint = Digest::SHA256.digest(@options.fingerprint.call(@exchange.request, @body)) if @options.fingerprint
      fingerprint ||= digest unless json
      Request.new(key: @key, scope: @scope, principal: @principal, json:, fingerprint:, derive:,
                  http_method: @exchange.http_method, target: @exchange.target, exclude: @options.exclude,
                  ttl: derive || @options.ttl, wait: @options.wait)
    end

    def digest = Identity.digest(@exchange.http_method, @exchange.target, @exchange.content_type, @body)

    def claimed
      result = execution.run do |claim|
        @executed = true
        @key = claim.key # it may be one that the server has derived
        tell(:on_execute, "execute", claim)
        run_handler(claim)
      end
      reply_to(result)
    rescue StandardError => error
      raise if @executed # the handler has begun: what fails is not the request's JSON any more

      not_claimed(error)
    end

    def execution = (@leased ? Leased : Transactional).new(@database, @request, @options)

    # The errors of idem_begin.
    def not_claimed(error)
      if @request.json && Failures.refused_by_jsonb?(error)
        @request.json = nil
        @request.fingerprint ||= digest
        return claimed
      end
      return unprotected(away: true) if error.is_a?(DatabaseAway) && @options.unprotected_without_database

      case Failures.sqlstate(error)
      when "54000", "54001" then raise Problem.new("body_too_large", "The body is too large, or nested too deeply.")
      when "22P02", "22021", "22032", "22030" then raise Problem, "bad_json"
      else raise error, cause: error.cause
      end
    end

    def reply_to(result)
      record = result.record
      @key = record.key if record
      case result.outcome
      when "executed", "not_kept" then with_key(result.answer.to_send)
      when "replay", "failed"
        tell(:on_replay, "replay", record)
        with_key(result.answer || @problems.answer("failed"), [@options.replay_header, "true"])
      else refuse(result.outcome, record&.retry_after, record)
      end
    end

    # `away`: not in a transaction either.
    def unprotected(away: false)
      claim = @leased ? LeasedClaim.new(@request) : Claim.new(@request)
      answer = @leased || away ? run_handler(claim) : execution.unclaimed { |held| run_handler(held) }
      with_key(answer.to_send)
    rescue Rejection => rejection
      with_key(rejection.answer)
    end

    def run_handler(claim)
      limit = @options.max_answer_bytes
      answer = @exchange.run(claim, @body, @options.omit_large_answers ? nil : limit)
      return answer if answer.body.bytesize <= limit

      Answer.new(status: answer.status, headers: [%w[Idempotent-Body omitted]], raised: answer.raised, whole: answer)
    end

    def refuse(word, retry_after = nil, record = nil)
      tell(:on_refusal, word, record)
      with_key(@problems.answer(word, retry_after))
    end

    def tell(hook, outcome, claim) = @options.tell(hook, Event.new(@scope, @key, claim&.attempt, outcome))

    def with_key(answer, *fields)
      fields << [@options.key_header, Key.quote(@key)] if @key && (@ours || @options.echo_key)
      return answer if fields.empty?

      others = answer.headers.reject { |name, _| fields.any? { |given, _| given.casecmp?(name) } }
      Answer.new(status: answer.status, headers: others + fields, body: answer.body)
    end
  end

  # The database and options that all routes of a service share, and two ways to make a route.
  class Keys
    def initialize(database, **common)
      @database = database
      @common = common
      Options.new(principal: BEARER, **common) # raises where one is wrong
    end

    # The same with other ones.
    def with(database: @database, **options) = Keys.new(database, **@common, **options)

    def transactional(**options) = route(:transactional, **options)

    def leased(**options) = route(:leased, **options)

    def route(kind, **options) = Route.new(@database, kind, Options.new(**@common, **options))
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
