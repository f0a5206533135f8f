# frozen_string_literal: true

module Idempotency
  # The work's view of a leased claim.
  class LeasedClaim < Claim
    # `held` is nil where the request runs without a claim.
    def initialize(request, record = nil, held = nil)
      super(request, record)
      @record = record
      @held = held
    end

    def kind = :leased

    def recovery_point = @record&.recovery_point

    def state = @held&.state || {}

    # Does a part of the work, and notes that it is done, with its result, a value of JSON.
    #
    # A later attempt gets the result, and does not repeat the part. A crash between work and note repeats it: a service
    # that it calls needs a key, too; derive one from this claim's.
    def step(name, &work) = @held ? @held.step(name.to_s, &work) : work.call

    # Ends the claim: it is not known whether the work had its effect.
    #
    # Repeats get `unknown` until an operator decides. `reference` is the provider's name for the attempt. The work's
    # answer is still sent, but not stored. Only the first call counts.
    def unknown(error = nil, reference = nil) = @held&.end_as_unknown(error, reference)

    # Whether the work must stop: the lease is lost or may have expired, or its worker has been aborted.
    def lost? = @held ? @held.heart.told? : false

    # Raises LeaseLost, or an Error of the abort, if the work must stop.
    def check = @held&.heart&.check_told

    # Sleeps until the work must stop; for work that only waits.
    def wait_until_lost = @held&.heart&.wait
  end

  # The claim is committed first, and the answer with its token afterwards.
  class Leased < Execution
    attr_reader :record, :state, :heart

    # `uncertain`: work that fails may have had effects. `on_lost` gets the record when the claim is lost.
    def initialize(database, request, settings, uncertain: true, on_lost: nil)
      super(database, request, settings)
      @uncertain = uncertain
      @on_lost = on_lost
      @noting = Mutex.new
    end

    def run
      record = retried { claim }
      return record.result unless record.execute?

      hold(record, @sent)
      settle { yield LeasedClaim.new(@request, record, self) }
    end

    # Takes a claim that is committed, by a statement that was sent then.
    def hold(record, sent)
      @record = record
      @state = record.state
      @heart = Heartbeat.new(@settings.lease, sent, -> { @on_lost&.call(record) }) do
        @database.statement(*Statements.extend_lease(@request, record))
      end
    end

    # Does the work, and ends the claim by its result: an answer, or a Result where the work has ended the claim.
    def settle(&work)
      finish(answer_of(work))
    rescue LeaseLost
      raise if @unknown

      Result.new("in_progress")
    end

    def step(name)
      return @state[name] if @state.key?(name)
      raise Error, "the claim has ended as unknown" if @unknown

      heart.check
      result = yield
      # A note contains all steps, so an older one must not overwrite a newer one.
      @noting.synchronize { held_still { note(name, result) } }
      result
    end

    def end_as_unknown(error, reference)
      return if @unknown

      held_still { repeated(Statements.unknown(@request, @record, error, reference)) }
      @unknown = true
      heart.stop
    end

    private

    def claim
      @sent = Limit.now
      Record.new(statement(Statements.claim(@request, @settings.lease), @request.wait.to_f).first)
    end

    def answer_of(work)
      limit = limit_of_work(Contract::LEASED_HANDLER_TIMEOUT_MS)
      answer = heart.run { Limit.within(limit, HandlerLate, at: :immediate, &work) }
    rescue Rejection => rejection
      answer = rejection.answer
    ensure
      give_up($ERROR_INFO) unless answer
    end

    # The caller learns of the work's failure even if it cannot be recorded.
    def give_up(error)
      return if @unknown

      heart.check
      reason = error ? error.message : "the handler has given no answer"
      quietly { fail_with(reason, !error.is_a?(NothingHappened)) }
    end

    def finish(answer)
      return answer if answer.is_a?(Result)
      return Result.new("not_kept", answer, @record) if @unknown

      heart.check
      verdict = verdict_on(answer)
      end_by(verdict, answer)
      Result.new(verdict == "keep" ? "executed" : "not_kept", answer, @record)
    end

    def verdict_on(answer)
      @settings.verdict_on(answer)
    rescue StandardError => error
      give_up(error)
      raise
    end

    def end_by(verdict, answer)
      reason = "status #{answer.status}"
      case verdict
      when "keep" then complete(answer)
      when "unknown" then end_with(Statements.unknown(@request, @record, reason))
      else fail_with(reason, verdict != "free")
      end
    end

    def complete(answer)
      end_with(Statements.complete(@request, @record, answer, @settings.drop_headers))
    rescue LeaseLost
      @on_lost&.call(@record)
      raise
    rescue StandardError => error
      # The answer cannot be kept, but the work is done.
      quietly { fail_with("the answer can't be stored: #{error.message}", true) } unless error.is_a?(DatabaseAway)
      raise
    end

    def fail_with(reason, open) = end_with(Statements.fail(@request, @record, reason, open && @uncertain))

    def end_with(statement)
      repeated(statement)
    rescue StandardError => error
      raise unless Failures.lost?(error)

      raise LeaseLost, "the claim is lost"
    end

    def note(name, result)
      following = @state.merge(name => result)
      retried do
        sent = Limit.now
        statement(Statements.checkpoint(@request, @record, name, following))
        heart.succeeded(sent)
      end
      @state[name] = result
    end

    # Tells the work to stop if the server reports the claim as lost.
    def held_still
      yield
    rescue StandardError => error
      heart.lose if Failures.lost?(error)
      heart.check
      raise
    end

    def repeated(statement) = retried { statement(statement) }

    def statement(statement, patience = 0) = limited(patience) { @database.statement(*statement) }

    # Whoever gets the error of the work need not know of this one, unless the claim is lost.
    def quietly
      yield
    rescue LeaseLost
      raise
    rescue StandardError
      nil
    end
  end
end
