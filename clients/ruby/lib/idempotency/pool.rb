# frozen_string_literal: true

module Idempotency
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
      @lock.synchronize { disinherit } unless @process == Process.pid
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

    def begin_anew
      @taken = SizedQueue.new(@size)
      @idle = []
      @made = {}.compare_by_identity
      @process = Process.pid
    end

    # The sessions are the parent's. Our end of their sockets is closed, so that nothing says goodbye to the server, not
    # even the collection of garbage.
    def disinherit
      return if @process == Process.pid

      @made.each_key do |connection|
        connection.socket_io.reopen(IO::NULL)
      rescue PG::Error
        nil # closed before
      end
      begin_anew
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
