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
      json = !body.nil? && !body.is_a?(String)
      headers = { "Content-Type" => "application/json", **headers } if json && headers.keys.none?(/\Acontent-type\z/i)
      @answer = Answer.new(status: Integer(status), headers: headers.to_a, body: json ? JSON.generate(body) : body)
      super("status #{status}")
    end
  end

  # Carries an error of the work, its `cause`, through our own code. No other run of the work may cure it.
  class Thrown < Error; end

  # Failures of the database, whether ruby-pg reports them or ActiveRecord.
  module Failures
    NO_CONNECTION = %w[ActiveRecord::ConnectionNotEstablished ActiveRecord::ConnectionFailed].freeze
    OUTDATED = "ActiveRecord::PreparedStatementCacheExpired"
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
      case error
      when DatabaseAway, PG::ConnectionBad, PG::UnableToSend then !idle_too_long?(error)
      when SystemCallError, SocketError then !of_handler
      else error.class.ancestors.any? { |kind| NO_CONNECTION.include?(kind.name) }
      end
    end

    # Another run of the transaction may succeed.
    def transient?(error, of_handler: false) = conflict?(error) || connection_lost?(error, of_handler:)

    def conflict?(error) = sqlstate(error).to_s.start_with?("40") || outdated?(error)

    # A table has changed since ActiveRecord prepared a statement for it.
    def outdated?(error) = causes(error).map { |one| one.class.name }.include?(OUTDATED)

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

  # A refusal that does not concern keys, raised while a request is looked at.
  class Problem < StandardError
    attr_reader :answer

    def initialize(word, detail = nil)
      @answer = Problem.answer({ **Problem.local(word), "detail" => detail }.compact)
      super(detail || word)
    end

    # The document without the server's help.
    def self.local(word)
      known = Contract::PROBLEMS.fetch(word)
      { "type" => "/problems/idempotency/#{word.tr("_", "-")}", "title" => known.title, "status" => known.status }
    end

    def self.answer(document)
      headers = { "Content-Type" => "application/problem+json", "Retry-After" => document["retry_after"]&.to_s }
      Answer.new(status: document["status"], headers: headers.compact.to_a, body: JSON.generate(document))
    end
  end

  # Problem documents (RFC 9457) of one database, each requested once.
  Problems = Struct.new(:database, :options) do
    def answer(word, retry_after = nil)
      retry_after ||= 1 if word == "in_progress"
      ours = { "status" => options.status_of(word), "retry_after" => retry_after && [1, retry_after.ceil].max }
      Problem.answer(document(word).merge(ours.compact))
    end

    private

    def document(word)
      return Problem.local(word) if Contract::PROBLEMS.fetch(word).local

      @known ||= {}
      @known[word] ||= Limit.within(options.database_timeout, DatabaseLate) do
        JSON.parse(database.statement(Contract::PROBLEM_SQL, [word]).first["problem"])
      end
    rescue StandardError
      Problem.local(word)
    end
  end
end
