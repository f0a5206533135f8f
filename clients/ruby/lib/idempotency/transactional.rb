# frozen_string_literal: true

module Idempotency
  # The work's view of a claim in its transaction. `client` is what the database gives to handlers.
  TransactionalClaim = Struct.new(:client, :key, :scope, :principal, :attempt, :protected, keyword_init: true) do
    def protected? = protected

    def kind = :transactional
  end

  # Claim, work and answer in one transaction.
  class Transactional
    def initialize(database, request, settings)
      @database = database
      @request = request
      @settings = settings
    end

    def run(&work)
      result = claimed { |transaction, record| perform(transaction, record, work) }
      return result unless result.outcome == "undone"

      answer = result.answer
      return Result.new("not_kept", answer, result.record) unless %w[keep unknown].include?(@settings.verdict_on(answer))

      # Its work is rolled back. If another request has claimed the key meanwhile, its answer counts.
      kept = answer.dup.tap { |own| own.raised = false }
      claimed { kept }
    end

    # True if the message is applied now.
    def once(&work)
      Retries.new(@settings.attempts).run do
        held(Statements.once(@request)) do |transaction|
          next false unless transaction.rows.first["first"] == "t"

          let(transaction, nil) { work.call(transaction.client) }
          commit(transaction, Pg::CHECK)
          true
        end
      end
    end

    # The work of a claim that was committed before: its result commits together with its effects. The block gets the
    # connection.
    def work_off(record, &work)
      held(nil) { |transaction| finish(transaction, record, answer_of(work, transaction, transaction.client)) }
    rescue Thrown => thrown
      raise thrown.error
    end

    # Without a claim, with the same limits and runs, except after a COMMIT without an answer.
    def unclaimed(&work)
      Retries.new(@settings.attempts).run do
        held(nil) do |transaction|
          answer = answer_of(work, transaction, claim_in(transaction))
          next answer if answer.raised || !%w[keep unknown].include?(@settings.verdict_on(answer))

          commit_in_doubt(transaction)
          answer
        end
      end
    end

    private

    def claimed
      Retries.new(@settings.attempts).run do |retries|
        held(Statements.claim(@request, nil), @request.wait.to_f) do |transaction|
          record = Record.new(transaction.rows.first)
          raise Retries::OwnTransaction if record.outcome == "in_progress" && retries.lost?

          next finish(transaction, record, yield(transaction, record)) if record.execute?

          transaction.nothing_done
          record.result
        end
      end
    end

    def perform(transaction, record, work)
      @settings.on_claim&.call(record)
      answer_of(work, transaction, claim_in(transaction, record))
    end

    def finish(transaction, record, answer)
      return Result.new("undone", answer, record) if answer.raised

      case @settings.verdict_on(answer)
      when "keep"
        commit(transaction, Statements.complete(@request, record, answer, @settings.drop_headers))
        Result.new("executed", answer, record)
      when "unknown"
        commit(transaction, Statements.unknown(@request, record, "status #{answer.status}"))
        Result.new("not_kept", answer, record)
      else Result.new("not_kept", answer, record)
      end
    end

    def claim_in(transaction, record = nil)
      TransactionalClaim.new(client: transaction.client, key: record&.key || @request.key, scope: @request.scope,
                             principal: @request.principal, attempt: record&.attempt || 1, protected: !record.nil?)
    end

    # A transaction, which rolls back unless the block commits it; also where a `throw` leaves the block.
    def held(first, patience = 0)
      transaction = limited(patience) { @database.open(first) }
      yield transaction
    ensure
      roll_back(transaction) if transaction
    end

    def roll_back(transaction)
      limited { transaction.rollback }
    rescue StandardError
      nil # the connection is closed, which rolls back
    end

    def commit(transaction, last) = limited { transaction.commit(last) }

    def commit_in_doubt(transaction)
      commit(transaction, Pg::CHECK)
    rescue StandardError => error
      raise unless Failures.connection_lost?(error)

      raise InDoubt, "it is not known whether the transaction committed"
    end

    def limited(patience = 0, &)
      Limit.within(@settings.database_timeout + patience, DatabaseLate, &)
    end

    # Of the work, or of its rejection.
    def answer_of(work, transaction, claim)
      let(transaction, @settings.limit_of_work(Contract::HANDLER_TIMEOUT_MS)) { work.call(claim) }
    rescue Thrown => thrown
      raise unless thrown.error.is_a?(Rejection)

      thrown.error.answer.dup.tap { |answer| answer.raised = true }
    end

    # The work, which outlives neither its time nor its connection.
    def let(transaction, seconds, &work)
      result = seconds ? Limit.within(seconds, HandlerLate, gone: transaction.method(:gone?), &work) : work.call
      raise ConnectionGone, "the connection is lost" if transaction.gone?

      result
    rescue ConnectionGone
      limited { transaction.check } # raises the reason
      raise
    rescue StandardError => error
      raise Thrown, error
    ensure
      transaction.work_is_over
    end
  end
end
