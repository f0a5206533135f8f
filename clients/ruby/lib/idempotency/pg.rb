# frozen_string_literal: true

require "delegate"
require "pg"

module Idempotency
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

  # ruby-pg. Handlers get a PG::Connection of this pool, in a transaction:
  #
  #   Idempotency::Pg.new(size: 10) { PG.connect(dbname: "shop", connect_timeout: 5) }
  class Pg
    CHECK = ["SELECT 1", [].freeze].freeze
    COMMIT = ["COMMIT", [].freeze].freeze
    BEGINNING = ["BEGIN", [].freeze].freeze

    def initialize(size: 5, &connect)
      raise ArgumentError, "idempotency: a block has to make the connections" unless connect

      @connect = connect
      @pool = Pool.new(size:) { Link.new(connect.call) }
    end

    # For a worker: how many there are, and one outside of the pool.
    def connections = @pool.size

    def connect = @connect.call

    # BEGIN and the first statement, in one message.
    def open(first) = held { |link| Transaction.new(self, link, link.together([BEGINNING, first].compact)) }

    # One statement that is its own transaction.
    def statement(*statement) = held { |link| link.together([statement]).tap { put(link) } }

    def put(link) = @pool.put(link)

    # What is in doubt is closed, which rolls back.
    def discard(link)
      @pool.forget
      link.close
    end

    private

    # The connection goes to the block's result, unless the block fails.
    def held
      link = take
      done = yield link
    ensure
      release(link) if link && !done
    end

    def release(link) = link.recovers? ? put(link) : discard(link)

    # One that was closed while it was idle is noticed without a round trip.
    def take
      loop do
        link = @pool.take
        return link unless link.gone?

        discard(link)
      end
    end

    # A transaction that has begun.
    class Transaction
      attr_reader :rows, :client

      def initialize(database, link, rows)
        @database = database
        @link = link
        @rows = rows
        @client = Guard.new(link.connection)
      end

      def gone? = @link.gone?

      # Raises the reason for which the connection is lost.
      def check = @link.together([CHECK])

      # The work cannot use it any more.
      def work_is_over = @client.close_guard

      # A COMMIT of a transaction that has failed succeeds by rolling it back.
      def commit(last)
        @link.together([last, COMMIT])
        raise Error, "COMMIT has rolled back" unless @link.tag == "COMMIT"

        give_back
      end

      # No answer waits for its ROLLBACK: the next user of the connection does.
      def nothing_done
        @nothing_done = true
      end

      def rollback
        return unless @link&.recovers?

        @link.settle unless @nothing_done
        give_back
      ensure
        @database.discard(@link) if @link
        @link = nil
      end

      private

      def give_back
        link = @link
        @link = nil
        @database.put(link)
      end
    end
  end
end
