# frozen_string_literal: true

require "active_record"

module Idempotency
  # The database of ActiveRecord's models. The claim is in the transaction that the models use; handlers get its
  # connection as well. ActiveRecord owns BEGIN and COMMIT.
  class ActiveRecord
    # `model`: one whose connection is used, as a class or by its name.
    def initialize(model = "ActiveRecord::Base")
      @model = model
    end

    def open(first) = Transaction.new(model.connection).open(first)

    # One statement that is its own transaction.
    def statement(*sql) = model.connection_pool.with_connection { |one| Transaction.new(one).alone(sql) }

    # For a worker: how many there are, one outside of the pool, and the end of a thread's use of its own.
    def connections = model.connection_pool.size

    def connect = model.connection_pool.then { |pool| pool.checkout.tap { |one| pool.remove(one) } }.raw_connection

    def release = model.connection_pool.release_connection

    private

    def model = @model.is_a?(String) ? @model.constantize : @model

    # A transaction of ActiveRecord's connection.
    class Transaction < Link
      # Within another transaction, only its owner would know when a claim commits. That of a test is none.
      def initialize(client)
        super
        client.extend(Savepoints)
        raise Error, "the claim is within a transaction already" if client.current_transaction.joinable?
      end

      def client = @connection

      # ActiveRecord sends its BEGIN first. Rails 7.1, asked again, would connect again to a server that is away.
      def connection = @raw || (@raw = client.raw_connection)

      # With the callbacks of `after_commit`.
      def commit(last)
        raise Error, "the handler has ended the transaction, or left one open" unless current?

        together([last])
        client.commit_transaction
      rescue StandardError
        @transaction.state.committed? ? raise(Thrown) : raise # of `after_commit`: the work must not run again
      end

      # Statements that are prepared for a table as it was fail in each further transaction.
      def concerned?(error) = super.tap { @outdated = Failures.outdated?(error) }

      # What is in doubt serves no other request.
      def rollback
        ended = sound? && ended?
      ensure
        close unless ended
        client.idempotency_transaction = @transaction = nil
      end

      # First of all: `throw_away!` alone deallocates prepared statements, and waits for a server that may never answer.
      def close
        super if @raw ||= client.instance_variable_get(:@connection) # before Rails 7.1, whose BEGIN has no answer yet
      ensure
        client.throw_away!
      end

      private

      def begin_with(first)
        client.idempotency_transaction = @transaction = client.begin_transaction(joinable: true)
        connection
        together([first]) if first
      end

      # One that was left in pipeline mode before its statement was sent is not active yet.
      def sound?
        @raw && !finished? && !pipeline? && idle? && connection.transaction_status != PG::PQTRANS_UNKNOWN
      end

      # After the ROLLBACK of all that is open, if need be.
      def ended?
        return true unless @transaction

        client.rollback_transaction until @transaction.state.finalized? || !client.transaction_open?
        client.rollback_transaction(@transaction) unless @transaction.state.finalized? # its COMMIT has failed
        client.clear_cache! if @outdated
        @transaction.state.finalized?
      end

      def current? = client.current_transaction.equal?(@transaction)
    end

    # Rails joins a `transaction` within another, and then ActiveRecord::Rollback in it rolls nothing back. The handler
    # did not begin the claim's transaction, so its own outermost ones become savepoints: Rollback does what it says.
    # Those of ActiveRecord itself (`save`, `destroy`) join, as in any transaction; `with_lock` has the handler's block.
    module Savepoints
      RAILS = %r{\A#{Regexp.escape(File.dirname(::ActiveRecord.method(:version).source_location.first))}/(?!locking/)}

      attr_accessor :idempotency_transaction

      def transaction(requires_new: nil, **options, &block)
        outermost = idempotency_transaction && current_transaction.equal?(idempotency_transaction)
        super(requires_new: requires_new || (outermost && !rails?(block)), **options, &block)
      end

      private

      def rails?(block) = block.source_location.to_a.first.to_s.match?(RAILS)
    end
  end
end
