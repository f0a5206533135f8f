# frozen_string_literal: true

module Idempotency
  class Error < StandardError; end

  # The database could not be reached, or did not answer in time.
  class DatabaseAway < Error; end

  # The database did not answer within the whole time.
  class DatabaseLate < DatabaseAway; end

  # The connection has ended while the work was waiting for something else.
  class ConnectionGone < DatabaseAway; end

  # COMMIT has no answer, and there is no record that tells its result: a repetition might do the work twice.
  class InDoubt < DatabaseAway; end

  # Another request has the claim now, or may have it: later work is not recorded.
  class LeaseLost < Error; end

  # Raised by the work of a leased claim: nothing has happened, so the next request may try again.
  class NothingHappened < Error; end

  # The work has not ended within `handler_timeout`.
  class HandlerLate < Error; end

  # An answer that cannot be kept.
  class AnswerTooLarge < Error; end

  # Raised by work: it is rolled back, and the answer is that of the request, stored and replayed as any other.
  class Rejection < Error
    attr_reader :answer

    # A Hash or an Array as body becomes JSON.
    def initialize(status, body = nil, headers = {})
      unless body.nil? || body.is_a?(String)
        headers = { "Content-Type" => "application/json" }.merge(headers)
        body = JSON.generate(body)
      end
      @answer = Answer.new(status:, headers: headers.to_a, body:)
      super("status #{status}")
    end
  end

  # Carries an error of the work, its `cause`, through our own code, which tells it from errors of our statements.
  class Thrown < Error
    attr_reader :ours

    # `ours`: it is about the connection of the work's transaction.
    def initialize(ours)
      super("the work has failed")
      @ours = ours
    end
  end

  # Failures of the database, whether ruby-pg reports them or ActiveRecord.
  module Failures
    NO_CONNECTION = %w[ActiveRecord::ConnectionNotEstablished ActiveRecord::ConnectionFailed].freeze
    UNREADABLE = / connection (?:info string|option)|\bURI\b|percent-encoded|invalid port number/

    module_function

    # The error, its cause, the cause of that.
    def causes(error) = Enumerator.produce(error) { |one| one.cause || raise(StopIteration) }.to_a

    # In a line, for a log. Libpq's message about settings that it cannot read has a part of them, which may be one of
    # the password.
    def reason_of(error)
      reason = causes(error).grep(StandardError).last.message.lines.first.to_s.chomp
      UNREADABLE.match?(reason) ? "the connection settings cannot be read" : reason
    end

    # What ruby-pg has raised, within whatever errors: of ActiveRecord, of a template.
    def of_pg(error) = causes(error).find { |one| one.is_a?(PG::Error) }

    def sqlstate(error) = of_pg(error)&.result&.error_field(PG::PG_DIAG_SQLSTATE)

    # The connection is lost, or none could be made. A handler's own calls fail with errors of the network, too.
    def connection_lost?(error, of_handler: false)
      state = sqlstate(error)
      # 25006: a standby, which takes no claim.
      return state.match?(/\A(08|53|57P)/) || (state == "25006" && !of_handler) if state

      error = of_pg(error) || error
      return false if idle_too_long?(error)

      case error
      when DatabaseAway, PG::ConnectionBad, PG::UnableToSend then true
      when SystemCallError, SocketError then !of_handler
      else error.class.ancestors.any? { |kind| NO_CONNECTION.include?(kind.name) }
      end
    end

    # Another run of the transaction may succeed.
    def transient?(error, of_handler: false) = conflict?(error) || connection_lost?(error, of_handler:)

    def conflict?(error) = sqlstate(error).to_s.start_with?("40")

    # No call like this can succeed: a right, a function, the database or a value is wrong.
    def mistake?(error)
      state = sqlstate(error)
      state ? state.match?(/\A(0A|22|28|3D|3F|42)/) : !connection_lost?(error)
    end

    # JSON that jsonb cannot hold: an escaped NUL, a number beyond numeric.
    def refused_by_jsonb?(error) = %w[22P05 22003].include?(sqlstate(error))

    # ID404 and ID409: no claim with this token.
    def lost?(error) = %w[ID404 ID409].include?(sqlstate(error))

    # 25P03, which ruby-pg reports as a lost connection where a statement was sent after it. Each run would exceed it.
    def idle_too_long?(error) = error.is_a?(PG::ConnectionBad) && error.message.include?("idle-in-transaction timeout")
  end
end
