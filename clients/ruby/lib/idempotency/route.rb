# frozen_string_literal: true

module Idempotency
  # The argument of hooks. `outcome`: execute, replay, lease_lost, or why the request was refused.
  Event = Struct.new(:scope, :key, :attempt, :outcome)

  # One route's protection: takes an exchange, and returns the answer to send.
  class Route
    attr_reader :options, :kind, :problems, :database

    def initialize(database, kind, options)
      raise ArgumentError, "idempotency: `kind` has to be :transactional or :leased" unless %i[transactional
                                                                                               leased].include?(kind)

      @database = database
      @kind = kind
      @options = options
      @problems = Problems.new(database, options.statuses, options.database_timeout)
    end

    def handle(exchange)
      Handling.new(self, exchange).answer
    rescue Problem => problem
      problem.answer
    rescue HandlerLate
      Problem.new("handler_late").answer
    end

    # A hook's exception does not affect the request.
    def tell(hook, *event)
      options.public_send(hook)&.call(Event.new(*event))
    rescue StandardError => error
      warn "idempotency: a hook has failed: #{error.full_message(highlight: false)}"
    end

    def settings(**more)
      Settings.new(attempts: options.attempts, database_timeout: options.database_timeout, keep: options.keep,
                   verdict: options.verdict, handler_timeout: options.handler_timeout, lease: options.lease,
                   drop_headers: [options.key_header, options.replay_header], **more)
    end
  end

  # One request on its way through a route.
  class Handling
    def initialize(route, exchange)
      @route = route
      @options = route.options
      @exchange = exchange
    end

    def answer
      @scope = @options.scope || @exchange.default_scope
      @principal = @options.principal.call(@exchange.request).to_s
      raise Problem, "unauthorized" if @principal.empty?

      field = @exchange.header(@options.key_header)
      @key = field && Key.parse(field)
      return refuse("bad_key") if field && @key.nil?
      return refuse("missing_key") if @key.nil? && missing_key == :refuse

      @body = @exchange.read_body(@options.max_request_bytes)
      with_body
    rescue DatabaseAway
      refuse("unavailable", 1)
    end

    private

    def missing_key = @options.concern?(@exchange.http_method) ? @options.missing_key : :pass

    def with_body
      @ours = @key.nil? && %i[generate derive].include?(missing_key)
      @key = Key.generate if @key.nil? && missing_key == :generate
      @request = identified
      protects? ? claimed : unprotected
    end

    def protects? = (@key || @request.derive) && @options.concern?(@exchange.http_method)

    def identified
      # Many libraries send the type without a body.
      json = Identity.text_of(@body) if !@body.empty? && Identity.json?(@exchange.content_type)
      derive = @options.window if @key.nil? && missing_key == :derive
      Request.new(key: @key, scope: @scope, principal: @principal, json:,
                  fingerprint: own_fingerprint || (json ? nil : digest), http_method: @exchange.http_method,
                  target: @exchange.target, exclude: @options.exclude, ttl: derive || @options.ttl,
                  wait: @options.wait, derive:)
    end

    def own_fingerprint = @options.fingerprint && Digest::SHA256.digest(@options.fingerprint.call(@exchange.request, @body))

    def digest = Identity.digest(@exchange.http_method, @exchange.target, @exchange.content_type, @body)

    def claimed
      reply_to(flow.run { |claim| run_handler(claim) })
    rescue StandardError => error
      raise if @executed # the handler has begun: what fails is not the request's JSON any more

      not_claimed(error)
    end

    def flow
      kind = @route.kind == :leased ? Leased : Transactional
      kind.new(@route.database, @request, @route.settings(
                                            on_claim: lambda { |record|
                                              @executed = true
                                              @key = record.key # it may be one that the server has derived
                                              tell(:on_execute, "execute", record)
                                            },
                                            on_lease_lost: ->(record) { tell(:on_lease_lost, "lease_lost", record) }
                                          ))
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
      with_key((away || @route.kind == :leased ? run_handler(bare_claim) : in_a_transaction).to_send)
    rescue Rejection => rejection
      with_key(rejection.answer)
    end

    def bare_claim
      return LeasedClaim.new(@request) if @route.kind == :leased

      TransactionalClaim.new(key: @key, scope: @scope, principal: @principal, attempt: 1, protected: false)
    end

    def in_a_transaction
      Transactional.new(@route.database, @request, @route.settings).unclaimed { |claim| run_handler(claim) }
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

    def tell(hook, outcome, record) = @route.tell(hook, @scope, @key, record&.attempt, outcome)

    def with_key(answer, *fields)
      fields << [@options.key_header, Key.quote(@key)] if @key && (@ours || @options.echo_key)
      return answer if fields.empty?

      names = fields.map { |name, _| name.downcase }
      headers = answer.headers.reject { |name, _| names.include?(name.downcase) }
      Answer.new(status: answer.status, headers: headers + fields, body: answer.body)
    end
  end
end
