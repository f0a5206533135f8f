# frozen_string_literal: true

module Idempotency
  # Runs all of it again after a conflict or a lost connection.
  #
  # Also after a COMMIT without an answer: the same key gets `replay` if it was committed, `execute` if not.
  class Retries
    # The claim is still that of our own transaction, whose connection is lost: the server may notice later than we do.
    class OwnTransaction < Error; end

    FIRST_PAUSE = 0.02

    def initialize(attempts)
      @attempts = attempts
      @attempt = @late = 0
    end

    # Whether an earlier run has lost its connection, and another one may follow.
    def lost? = @lost && @attempt < @attempts

    def run
      @attempt += 1
      yield self
    rescue InDoubt
      raise
    rescue StandardError => error
      note(error)
      pause
      retry
    end

    # Only after a conflict. The error is the last run's own.
    def after_conflicts
      @attempt += 1
      yield
    rescue StandardError => error
      cause = error.is_a?(Thrown) ? error.cause : error
      raise cause, cause: cause.cause unless ours?(error) && Failures.conflict?(cause) && @attempt < @attempts

      pause
      retry
    end

    private

    def pause = sleep(FIRST_PAUSE * (2**(@attempt - 1)) * rand(0.5..1.5))

    # Of our statements, or of work on the connection of its transaction.
    def ours?(error) = !error.is_a?(Thrown) || error.ours

    def note(error)
      cause = error.is_a?(Thrown) ? error.cause : error
      transient = cause.is_a?(OwnTransaction) || Failures.transient?(cause, of_handler: !cause.equal?(error))
      raise cause, cause: cause.cause unless transient && ours?(error)

      @lost ||= !Failures.conflict?(cause)
      # Each of these has used the whole time; a second one asks for the result of a COMMIT.
      @late += 1 if cause.is_a?(DatabaseLate)
      raise DatabaseAway, "the database could not do it" if @attempt >= @attempts || @late == 2
    end
  end
end
