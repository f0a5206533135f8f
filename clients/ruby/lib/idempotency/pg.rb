# frozen_string_literal: true

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
    def open(first) = take.open(first)

    # One statement that is its own transaction.
    def statement(*statement) = take.alone(statement)

    # What is in doubt is closed, which rolls back.
    def give_back(link, sound)
      return @pool.put(link) if sound

      @pool.forget(link)
      link.close
    end

    private

    # One that was closed while it was idle is noticed without a round trip.
    def take
      link = @pool.take
      return link unless link.gone?

      give_back(link, false)
      take
    end
  end

  # Connections for the threads of a process, made when they are needed. A forked process makes its own.
  class Pool
    attr_reader :size

    def initialize(size:, &connect)
      @size = size
      @connect = connect
      @lock = Mutex.new
      begin_anew
    end

    # The one that was idle for the shortest time, or a new one. Waits while all are taken.
    def take
      @lock.synchronize { begin_anew unless @process == Process.pid }
      @taken << true
      @idle.pop || connect
    end

    def put(connection)
      @idle << connection
      @taken.pop
    end

    # It is closed instead of put back.
    def forget(connection)
      @made.delete(connection)
      @taken.pop
    end

    private

    # The sessions before are the parent's. Our end of their sockets is closed, so that nothing says goodbye to the
    # server, not even the collection of garbage.
    def begin_anew
      @made&.each_key { |connection| connection.socket_io.reopen(IO::NULL) unless connection.finished? }
      @made = {}.compare_by_identity
      @idle = []
      @taken = SizedQueue.new(@size)
      @process = Process.pid
    end

    def connect
      connection = @connect.call
      @made[connection] = true
      connection
    ensure
      forget(connection) unless connection
    end
  end
end
