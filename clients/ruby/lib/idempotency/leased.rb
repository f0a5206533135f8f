# frozen_string_literal: true

module Idempotency
  # The work's view of a leased claim.
  class LeasedClaim < Claim
    # `held` is nil where the request runs without a claim.
    def initialize(request, held = nil)
      super(request, held&.record)
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

    # `uncertain`: work that fails may have had effects.
    def initialize(database, request, settings, uncertain: true)
      super(database, request, settings)
      @uncertain = uncertain
      @noting = Mutex.new
    end

    def run
      sent, rows = repeated(request.claim(settings.lease), request.wait.to_f)
      record = Record.new(rows.first, request)
      return record.result unless record.execute?

      hold(record, sent)
      settle { yield LeasedClaim.new(request, self) }
    end

    # Takes a claim that is committed, by a statement that was sent then.
    def hold(record, sent)
      @record = record
      @state = record.state
      lost = Event.new(request.scope, record.key, record.attempt, "lease_lost")
      @heart = Heartbeat.new(settings.lease, sent, -> { settings.tell(:on_lease_lost, lost) }) do
        database.statement(*record.extend_lease)
      end
    end

    # Does the work, and ends the claim by its result: an answer, or a Result where the work has ended the claim.
    def settle(&work)
      answer = answer_of(work)
      return answer if answer.is_a?(Result)
      return Result.new("not_kept", answer, @record) if @unknown

      heart.check
      finish(answer)
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
      @noting.synchronize do
        sent, = held_still(@record.checkpoint(name, @state.merge(name => result)))
        heart.succeeded(sent)
        @state[name] = result
      end
    end

    def end_as_unknown(error, reference)
      return if @unknown

      held_still(@record.unknown(error, reference))
      @unknown = true
      heart.stop
    end

    private

    def answer_of(work)
      limit = settings.handler_timeout || (Contract::LEASED_HANDLER_TIMEOUT_MS / 1000.0)
      answer = heart.run { Limit.within(limit, HandlerLate, at: :immediate, &work) }
    rescue Rejection => rejection
      answer = rejection.answer
    ensure
      give_up($ERROR_INFO) unless answer || @unknown
    end

    def finish(answer)
      end_by_verdict(@record, answer) do |verdict, last|
        @not_kept = verdict != "keep"
        held_still(last || failure("status #{answer.status}", verdict != "free"))
      end
    rescue StandardError => error
      # But the work is done.
      give_up(error, "the answer can't be stored: #{error.message}") unless @not_kept || error.is_a?(DatabaseAway)
      raise
    end

    # The caller learns of the error even if it cannot be recorded, unless the claim is lost.
    def give_up(error, reason = error&.message)
      heart.check
      held_still(failure(reason || "the handler has given no answer", !error.is_a?(NothingHappened)))
    rescue StandardError
      heart.check
    end

    def failure(reason, open) = @record.fail(reason, open && @uncertain)

    # Tells the work to stop if the server reports the claim as lost.
    def held_still(statement)
      repeated(statement)
    rescue StandardError => error
      heart.lose if Failures.lost?(error)
      heart.check
      raise
    end

    # The moment at which it was sent, and its rows.
    def repeated(statement, patience = 0)
      Retries.new(settings.attempts).run { [Limit.now, limited(patience) { database.statement(*statement) }] }
    end
  end

  # Extends the lease of a claim, and knows when it may have expired.
  #
  # A beat comes at a third of the lease; after a failed one, the next comes a tenth of the lease later. A failed beat
  # does not tell who owns the claim, so the work continues until the lease may have expired. That is counted from the
  # moment at which the last successful request was sent, so our count ends before the server's.
  class Heartbeat
    # The block sends one beat.
    def initialize(lease, sent, on_lost, &beat)
      @lease = lease
      @until = sent + lease
      @on_lost = on_lost
      @beat = beat
      @lock = Mutex.new
      @changed = ConditionVariable.new
    end

    # Runs the block, with beats at the same time.
    def run
      @next = @until - (@lease * 2 / 3)
      Thread.new { beat while pause }
      yield
    ensure
      stop
    end

    def stop = change { @stopped = true }

    # Tells the work to stop, although the claim is still ours.
    def abort = change { @aborted = true }

    def told? = @lost || @aborted || false

    # Until the work is told to stop, or has ended.
    def wait = @lock.synchronize { @changed.wait(@lock) until told? || @stopped }

    def check_told = check || (@aborted && raise(Error, "the worker has been aborted"))

    def check = @lost && raise(LeaseLost, "the claim is lost: nothing more may be done")

    # A request that was sent then has extended the lease.
    def succeeded(sent) = @lock.synchronize { @until = [@until, sent + @lease].max }

    # The lease may have ended, or the server says that the claim is lost.
    def lose
      change do
        return if @lost

        @lost = @stopped = true
      end
      @on_lost.call
      false
    end

    private

    def change
      @lock.synchronize do
        yield
        @changed.broadcast
      end
    end

    # Until the next beat; false if there is none.
    def pause
      @lock.synchronize { @changed.wait(@lock, rest) until @stopped || rest.zero? }
      !@stopped && (Limit.now < @until || lose)
    end

    def rest = [[@next, @until].min - Limit.now, 0].max

    def beat
      sent = Limit.now
      Limit.within([@lease / 6, @until - sent].min, DatabaseLate, &@beat)
      succeeded(sent)
      @next = sent + (@lease / 3)
    rescue StandardError => error
      # What the work has ended meanwhile is not lost.
      return lose if Failures.lost?(error) && !@stopped

      @next = Limit.now + (@lease / 10)
    end
  end
end
