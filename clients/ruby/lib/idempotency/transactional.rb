# frozen_string_literal: true

require "delegate"

module Idempotency
  # The work's view of a claim in its transaction. `client` is what the database gives to handlers.
  class Claim
    attr_reader :key, :scope, :principal, :attempt, :client

    # `record` is nil where the request runs without a claim.
    def initialize(request, record = nil, client = nil)
      @key = record&.key || request.key
      @scope = request.scope
      @principal = request.principal
      @attempt = record&.attempt || 1
      @protected = !record.nil?
      @client = client
    end

    def protected? = @protected

    def kind = :transactional
  end

  # A driver's connection until the work is over: then it may serve another request.
  class Guard < SimpleDelegator
    def close_guard
      @over = true
    end

    def __getobj__
      ::Kernel.raise Error, "the transaction has ended, so the handler cannot use it any more" if @over

      super
    end
  end

  # What each way to run a request has: where its statements go, and the limits of these.
  class Execution
    def initialize(database, request, settings)
      @database = database
      @request = request
      @settings = settings
    end

    private

    def retried(&) = Retries.new(@settings.attempts).run(&)

    def limited(patience = 0, &) = Limit.within(@settings.database_timeout + patience, DatabaseLate, &)

    def limit_of_work(default_ms) = @settings.handler_timeout || (default_ms / 1000.0)
  end

  # Claim, work and answer in one transaction.
  class Transactional < Execution
    def run(&work)
      result = claimed { |transaction, record| answer_of(transaction, record, &work) }
      return result unless result.outcome == "undone"

      answer = result.answer
      return Result.new("not_kept", answer, result.record) unless @settings.commits?(answer)

      # Its work is rolled back. If another request has claimed the key meanwhile, its answer counts.
      kept = answer.dup.tap { |own| own.raised = false }
      claimed { kept }
    end

    # True if the message is applied now.
    def once(&work)
      retried do
        held(Statements.once(@request)) do |transaction|
          next false unless transaction.rows.first["first"] == "t"

          let(transaction, nil, &work)
          limited { transaction.commit(Link::CHECK) }
          true
        end
      end
    end

    # The work of a claim that was committed before: its result commits together with its effects.
    def work_off(record, &work)
      Retries.new(@settings.attempts).after_conflicts do
        held(nil) { |transaction| finish(transaction, record, answer_of(transaction, record, &work)) }
      end
    end

    # Without a claim, with the same limits and runs, except after a COMMIT without an answer.
    def unclaimed(&work)
      retried do
        held(nil) do |transaction|
          answer = answer_of(transaction, nil, &work)
          commit_in_doubt(transaction) if !answer.raised && @settings.commits?(answer)
          answer
        end
      end
    end

    private

    def claimed
      retried do |retries|
        held(Statements.claim(@request, nil), @request.wait.to_f) do |transaction|
          record = Record.new(transaction.rows.first)
          raise Retries::OwnTransaction if record.outcome == "in_progress" && retries.lost?

          next finish(transaction, record, yield(transaction, record)) if record.execute?

          transaction.nothing_done
          record.result
        end
      end
    end

    def finish(transaction, record, answer)
      return Result.new("undone", answer, record) if answer.raised

      verdict = @settings.verdict_on(answer)
      last =
        case verdict
        when "keep" then Statements.complete(@request, record, answer, @settings.drop_headers)
        when "unknown" then Statements.unknown(@request, record, "status #{answer.status}")
        end
      limited { transaction.commit(last) } if last
      Result.new(verdict == "keep" ? "executed" : "not_kept", answer, record)
    end

    # A transaction, which rolls back unless the block commits it; also where a `throw` leaves the block.
    def held(first, patience = 0)
      transaction = nil
      limited(patience) { transaction = @database.open(first) }
      yield transaction
    ensure
      roll_back(transaction) if transaction
    end

    def roll_back(transaction)
      limited { transaction.rollback }
    rescue StandardError
      nil # the connection is closed, which rolls back
    end

    def commit_in_doubt(transaction)
      limited { transaction.commit(Link::CHECK) }
    rescue StandardError => error
      raise unless Failures.connection_lost?(error)

      raise InDoubt, "it is not known whether the transaction committed"
    end

    # Of the work, or of its rejection.
    def answer_of(transaction, record)
      let(transaction, limit_of_work(Contract::HANDLER_TIMEOUT_MS)) do |client|
        yield Claim.new(@request, record, client)
      end
    rescue Thrown => thrown
      raise unless thrown.cause.is_a?(Rejection)

      thrown.cause.answer.dup.tap { |answer| answer.raised = true }
    end

    # The work, which outlives neither its time nor its connection, and does not use the connection when it is over.
    def let(transaction, seconds)
      client = Guard.new(transaction.client)
      work = proc { yield client }
      watched = { gone: transaction.method(:gone?), at: :immediate }
      result = seconds ? Limit.within(seconds, HandlerLate, **watched, &work) : work.call
      raise ConnectionGone, "the connection is lost" if transaction.gone?

      result
    rescue ConnectionGone
      limited { transaction.check } # raises the reason
      raise
    rescue StandardError => error
      raise Thrown, transaction.concerned?(error)
    ensure
      client.close_guard
    end
  end
end
