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
    def statement(*statement)
      model.connection_pool.with_connection { |connection| Transaction.new(connection).alone(statement) }
    end

    # For a worker: how many there are, one outside of the pool, and the end of a thread's use of its own.
    def connections = model.connection_pool.size

    def connect
      pool = model.connection_pool
      pool.checkout.tap { |connection| pool.remove(connection) }.raw_connection
    end

    def release = model.connection_pool.release_connection

    private

    def model = @model.is_a?(String) ? @model.constantize : @model

    # A transaction of ActiveRecord's connection.
    class Transaction < Link
      # Within another transaction, only its owner would know when a claim commits. That of a test is none.
      def initialize(client)
        super
        client.extend(Savepoints)
        raise Error, "the route is within a transaction already" if client.current_transaction.joinable?
      end

      def client = @connection

      # ActiveRecord sends its BEGIN first. Rails 7.1, asked again, would connect again to a server that is away.
      def connection = @raw || (@raw = client.raw_connection)

      # With the callbacks of `after_commit`.
      def commit(last)
        raise Error, "the handler has ended the transaction, or left one open" unless current?

        together([last])
        client.commit_transaction
      end

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
        unsound = [PG::PQTRANS_ACTIVE, PG::PQTRANS_UNKNOWN]
        @raw && !finished? && !pipeline? && unsound.none?(connection.transaction_status)
      end

      # After the ROLLBACK of all that is open, if need be.
      def ended?
        return true unless @transaction

        client.rollback_transaction until @transaction.state.finalized? || !client.transaction_open?
        @transaction.state.finalized?
      end

      def current? = client.current_transaction.equal?(@transaction)
    end

    # Rails joins a `transaction` within another, and then ActiveRecord::Rollback in it rolls nothing back. The handler
    # did not begin the claim's transaction, so its own outermost ones become savepoints: Rollback does what it says.
    # Those of ActiveRecord itself (`save`, `destroy`) join, as in any transaction.
    module Savepoints
      RAILS = "#{File.dirname(::ActiveRecord::Base.method(:transaction).source_location.first)}/".freeze

      attr_accessor :idempotency_transaction

      def transaction(requires_new: nil, **options, &block)
        outermost = idempotency_transaction && current_transaction.equal?(idempotency_transaction)
        super(requires_new: requires_new || (outermost && !rails?(block)), **options, &block)
      end

      private

      def rails?(block) = block.source_location.to_a.first.to_s.start_with?(RAILS)
    end
  end
end
