# frozen_string_literal: true

module Idempotency
  # Connections for the threads of a process, made when they are needed.
  class Pool
    def initialize(size:, &connect)
      @taken = SizedQueue.new(size)
      @idle = []
      @connect = connect
    end

    def size = @taken.max

    # The one that was idle for the shortest time, or a new one. Waits while all are taken.
    def take
      @taken << true
      @idle.pop || connect
    end

    def put(connection)
      @idle << connection
      forget
    end

    # It is closed instead of put back.
    def forget = @taken.pop

    private

    def connect
      connection = @connect.call
    ensure
      forget unless connection
    end
  end
end
