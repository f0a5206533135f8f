# frozen_string_literal: true

require "delegate"

module Idempotency
  # The work's view of a claim in its transaction. `client` is what the database gives to handlers.
  class Claim
    attr_reader :key, :scope, :principal, :client

    # `record` is nil where the request runs without a claim.
    def initialize(request, record = nil, client = nil)
      @key = (record || request).key
      @scope = request.scope
      @principal = request.principal
      @record = record
      @client = client
    end

    def attempt = @record&.attempt || 1

    def protected? = !@record.nil?

    def kind = :transactional
  end

  # A driver's connection until the work is over: then it may serve another request.
  class Guard < SimpleDelegator
    def close_guard = (@over = true)

    def __getobj__
      @over ? ::Kernel.raise(Error, "the transaction has ended, so the handler cannot use it any more") : super
    end
  end

  # What each way to run a request has: where its statements go, and the limits of these.
  Execution = Struct.new(:database, :request, :settings) do
    private

    def limited(patience = 0, &) = Limit.within(settings.database_timeout + patience, DatabaseLate, &)

    # Ends the claim as the settings judge the answer: the block gets the verdict, and the statement for it, if any.
    def end_by_verdict(record, answer)
      verdict = settings.verdict_on(answer)
      kept = verdict == "keep"
      last = record.complete(answer, settings.drop_headers) if kept
      last = record.unknown("status #{answer.status}") if verdict == "unknown"
      yield verdict, last
      Result.new(kept ? "executed" : "not_kept", answer, record)
    end
  end

  # Claim, work and answer in one transaction.
  class Transactional < Execution
    def run(&work)
      result = claimed { |transaction, record| answer_of(transaction, record, &work) }
      return result unless result.answer&.raised && settings.commits?(result.answer)

      # Its work is rolled back. If another request has claimed the key meanwhile, its answer counts.
      kept = result.answer.dup.tap { |own| own.raised = false }
      claimed { kept }
    end

    # True if the message is applied now.
    def once(&work)
      held(request.once) do |transaction|
        next false unless transaction.rows.first["first"] == "t"

        let(transaction, &work)
        limited { transaction.commit(Link::CHECK) }
        true
      end
    end

    # The work of a claim that was committed before: its result commits together with its effects.
    def work_off(record, &work)
      held(nil, conflicts_only: true) do |transaction|
        finish(transaction, record, answer_of(transaction, record, &work))
      end
    end

    # Without a claim, with the same limits and runs, except after a COMMIT without an answer.
    def unclaimed(&work)
      held(nil) do |transaction, retries|
        answer = answer_of(transaction, nil, &work)
        next answer if answer.raised || !settings.commits?(answer)

        retries.committing
        limited { transaction.commit(Link::CHECK) }
        answer
      end
    end

    private

    def claimed
      held(request.claim, request.wait.to_f) do |transaction, retries|
        record = Record.new(transaction.rows.first, request)
        # The server may notice later than we do that a connection is lost.
        raise DatabaseAway, "our own transaction has the claim" if record.outcome == "in_progress" && retries.lost?

        next finish(transaction, record, yield(transaction, record)) if record.execute?

        transaction.nothing_done
        record.result
      end
    end

    def finish(transaction, record, answer)
      return Result.new("not_kept", answer, record) if answer.raised

      end_by_verdict(record, answer) { |_, last| limited { transaction.commit(last) } if last }
    end

    # A transaction, which rolls back unless the block commits it; also where a `throw` leaves the block.
    def held(first, patience = 0, **how)
      Retries.new(settings.attempts, **how).run do |retries|
        transaction = nil
        limited(patience) { transaction = database.open(first) }
        yield transaction, retries
      ensure
        roll_back(transaction) if transaction
      end
    end

    def roll_back(transaction)
      limited { transaction.rollback }
    rescue StandardError
      nil # the connection is closed, which rolls back
    end

    # Of the work, or of its rejection.
    def answer_of(transaction, record)
      let(transaction, settings.handler_timeout || (Contract::HANDLER_TIMEOUT_MS / 1000.0)) do |client|
        yield Claim.new(request, record, client)
      end
    rescue Rejection, Thrown => error
      # Whatever its cause: a conflict that the work rejects is its answer, too.
      rejection = [error, error.cause].grep(Rejection).first or raise
      rejection.answer.dup.tap { |answer| answer.raised = true }
    end

    # The work, which outlives neither its time nor its connection, and does not use the connection when it is over.
    def let(transaction, seconds = Float::INFINITY)
      client = Guard.new(transaction.client)
      gone = transaction.method(:gone?)
      Limit.within(seconds, HandlerLate, gone:, at: :immediate) { yield client }
           .tap { raise ConnectionGone, "the connection is lost" if gone.call }
    rescue ConnectionGone
      limited { transaction.check } # raises the reason
      raise
    rescue StandardError => error
      # Work runs again for its own transaction's failure, not for one of another server.
      raise if transaction.concerned?(error) && Failures.transient?(error, of_handler: true)

      raise Thrown
    ensure
      client.close_guard
    end
  end
end
