# frozen_string_literal: true

require "active_record"
require "forwardable"

module Idempotency
  # The database of ActiveRecord's models. The claim is in the transaction that the models use; handlers get its
  # connection as well. ActiveRecord owns BEGIN and COMMIT.
  class ActiveRecord
    # `model`: one whose connection is used, as a class or by its name.
    def initialize(model = "ActiveRecord::Base")
      @model = model
    end

    def open(first) = Transaction.new(ActiveRecord.outermost(model.connection), first)

    # One statement that is its own transaction. A connection that was left in the middle of it serves no other request.
    def statement(*statement)
      model.connection_pool.with_connection do |connection|
        rows = ActiveRecord.execute(ActiveRecord.outermost(connection), statement)
      ensure
        ActiveRecord.throw_away(connection) unless rows || ActiveRecord.sound?(connection)
      end
    end

    # For a worker: how many there are, one outside of the pool, and the end of a thread's use of its own.
    def connections = model.connection_pool.size

    def connect
      pool = model.connection_pool
      pool.checkout.tap { |connection| pool.remove(connection) }.raw_connection
    end

    def release = model.connection_pool.release_connection

    # Within another transaction, only its owner would know when a claim commits. That of a test is none.
    def self.outermost(connection)
      return connection unless connection.transaction_open? && connection.current_transaction.joinable?

      raise Error, "the route is within a transaction already"
    end

    # Runs it as the next statement of ActiveRecord's connection.
    def self.execute(connection, statement)
      connection.materialize_transactions
      Link.new(connection.raw_connection).together([statement])
    end

    # Whether another request can use it, if need be after a ROLLBACK.
    def self.sound?(connection)
      raw = connection.raw_connection
      # One that was left in pipeline mode before its statement was sent is not active yet.
      raw.pipeline_status == PG::PQ_PIPELINE_OFF &&
        [PG::PQTRANS_ACTIVE, PG::PQTRANS_UNKNOWN].none?(raw.transaction_status)
    rescue PG::Error
      false
    end

    # Closed first: `throw_away!` alone deallocates prepared statements, and waits for a server that may never answer.
    def self.throw_away(connection)
      connection.raw_connection.close
    rescue PG::Error
      nil # closed before
    ensure
      connection.throw_away!
    end

    private

    def model = @model.is_a?(String) ? @model.constantize : @model

    # A transaction that has begun.
    class Transaction
      extend Forwardable
      def_delegators :link, :gone?, :check, :concerned?
      attr_reader :rows

      def initialize(connection, first)
        @connection = connection
        connection.extend(Savepoints)
        connection.idempotency_transaction = @transaction = connection.begin_transaction(joinable: true)
        @rows = ActiveRecord.execute(connection, first) if first
        begun = true
      ensure
        rollback unless begun
      end

      def client = @connection

      def nothing_done; end

      # With the callbacks of `after_commit`.
      def commit(last)
        raise Error, "the handler has ended the transaction, or left one open" unless current?

        ActiveRecord.execute(@connection, last)
        @connection.commit_transaction
      end

      def rollback
        return unless @transaction

        settle
      rescue StandardError
        ActiveRecord.throw_away(@connection)
        raise
      ensure
        @connection.idempotency_transaction = @transaction = nil
      end

      private

      def link = Link.new(@connection.raw_connection)

      def settle
        return if @transaction.state.finalized?
        return ActiveRecord.throw_away(@connection) unless ActiveRecord.sound?(@connection)

        @connection.rollback_transaction until current? || !@connection.transaction_open?
        current? ? @connection.rollback_transaction : ActiveRecord.throw_away(@connection)
      end

      def current? = @connection.current_transaction.equal?(@transaction)
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
