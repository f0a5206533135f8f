# frozen_string_literal: true

require "pg"

module Idempotency
  # ruby-pg. Handlers get a PG::Connection of this pool, in a transaction:
  #
  #   Idempotency::Pg.new(size: 10) { PG.connect(dbname: "shop", connect_timeout: 5) }
  class Pg
    def initialize(size: 5, &connect)
      raise ArgumentError, "idempotency: a block has to make the connections" unless connect

      @connect = connect
      @pool = Pool.new(size:) { Link.new(connect.call, self) }
    end

    # For a worker: how many there are, and one outside of the pool.
    def connections = @pool.size

    def connect = @connect.call

    # The transaction that has begun with this statement. Its `rollback` returns the connection.
    def open(first) = held { |link| link.open(first) }

    # One statement that is its own transaction.
    def statement(*statement)
      link, rows = held { |one| [one, one.together([statement])] }
      @pool.put(link)
      rows
    end

    # What is in doubt is closed, which rolls back.
    def give_back(link, sound)
      return @pool.put(link) if sound

      @pool.forget(link)
      link.close
    end

    private

    # The connection goes to the block's result, unless the block fails.
    def held
      link = take
      done = yield link
    ensure
      give_back(link, link.recovers?) if link && !done
    end

    # One that was closed while it was idle is noticed without a round trip.
    def take
      link = @pool.take
      return link unless link.gone?

      give_back(link, false)
      take
    end
  end
end
