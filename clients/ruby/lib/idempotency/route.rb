# frozen_string_literal: true

module Idempotency
  # The argument of hooks. `outcome`: execute, replay, lease_lost, or why the request was refused.
  Event = Struct.new(:scope, :key, :attempt, :outcome)

  # One route's protection: takes an exchange, and returns the answer to send.
  class Route
    attr_reader :database, :kind, :options, :problems

    def initialize(database, kind, options)
      kinds = %i[transactional leased]
      raise ArgumentError, "idempotency: `kind` has to be one of #{kinds.join(", ")}" unless kinds.include?(kind)

      @database = database
      @kind = kind
      @options = options
      @problems = Problems.new(database, options)
    end

    def handle(exchange)
      Handling.new(self, exchange).answer
    rescue Problem => problem
      problem.answer
    rescue HandlerLate
      Problem.new("handler_late").answer
    end
  end

  # One request on its way through a route.
  class Handling
    def initialize(route, exchange)
      @route = route
      @options = route.options
      @exchange = exchange
      @concerned = @options.concern?(exchange.http_method)
    end

    def answer
      @scope = @options.scope || @exchange.default_scope
      @principal = Request.name_of(@options.principal.call(@exchange.request) || "")
      raise Problem, "unauthorized" if @principal.empty?

      field = @exchange.header(@options.key_header)
      @key = field && Key.parse(field)
      return refuse("bad_key") if field && @key.nil?

      without_key = @concerned ? @options.missing_key : :pass unless @key
      without_key == :refuse ? refuse("missing_key") : with_body(without_key)
    rescue DatabaseAway => error
      warn "idempotency: unavailable: #{Failures.reason_of(error)}"
      refuse("unavailable", 1)
    end

    private

    # `without_key`: how to go on; nil where there is a key.
    def with_body(without_key)
      @body = Body.read(@exchange.env, @options.max_request_bytes)
      @ours = %i[generate derive].include?(without_key)
      @key = Key.generate if without_key == :generate
      @request = identified(without_key == :derive ? @options.window : nil)
      @concerned && (@key || @request.derive) ? claimed : unprotected
    end

    def identified(derive)
      # Many libraries send the type without a body.
      json = Identity.text_of(@body) if !@body.empty? && Identity.json?(@exchange.content_type)
      hashed = fingerprint || (digest unless json)
      Request.new(key: @key, scope: @scope, principal: @principal, json:, fingerprint: hashed, derive:,
                  http_method: @exchange.http_method, target: @exchange.target, exclude: @options.exclude,
                  ttl: derive || @options.ttl, wait: @options.wait)
    end

    def fingerprint
      @options.fingerprint && Digest::SHA256.digest(@options.fingerprint.call(@exchange.request, @body))
    end

    def digest = Identity.digest(@exchange.http_method, @exchange.target, @exchange.content_type, @body)

    def claimed
      reply_to(execution.run { |claim| execute(claim) })
    rescue StandardError => error
      raise if @executed # the handler has begun: what fails is not the request's JSON any more

      not_claimed(error)
    end

    def execution
      return Transactional.new(@route.database, @request, @options) if @route.kind == :transactional

      on_lost = ->(record) { tell(:on_lease_lost, "lease_lost", record) }
      Leased.new(@route.database, @request, @options, on_lost:)
    end

    def execute(claim)
      @executed = true
      @key = claim.key # it may be one that the server has derived
      tell(:on_execute, "execute", claim)
      run_handler(claim)
    end

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
        with_key(result.answer || @route.problems.answer("failed"), [@options.replay_header, "true"])
      else refuse(result.outcome, record&.retry_after, record)
      end
    end

    # `away`: not in a transaction either.
    def unprotected(away: false)
      answer =
        if @route.kind == :leased then run_handler(LeasedClaim.new(@request))
        elsif away then run_handler(Claim.new(@request))
        else execution.unclaimed { |claim| run_handler(claim) }
        end
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
      with_key(@route.problems.answer(word, retry_after))
    end

    def tell(hook, outcome, claim) = @options.tell(hook, Event.new(@scope, @key, claim&.attempt, outcome))

    def with_key(answer, *fields)
      fields << [@options.key_header, Key.quote(@key)] if @key && (@ours || @options.echo_key)
      return answer if fields.empty?

      names = fields.map { |name, _| name.downcase }
      headers = answer.headers.reject { |name, _| names.include?(name.downcase) }
      Answer.new(status: answer.status, headers: headers + fields, body: answer.body)
    end
  end
end
