# frozen_string_literal: true

module Idempotency
  # Connections for the threads of a process, made when they are needed.
  class Pool
    attr_reader :size

    def initialize(size:, &connect)
      @size = size
      @connect = connect
      @idle = []
      @made = 0
      @lock = Mutex.new
      @returned = ConditionVariable.new
    end

    def take = reserve || connect

    def put(connection)
      @lock.synchronize do
        @idle.push(connection)
        @returned.signal
      end
    end

    # It is closed instead of put back.
    def forget
      @lock.synchronize do
        @made -= 1
        @returned.signal
      end
    end

    private

    # An idle connection, or nil: then the caller makes one.
    def reserve
      @lock.synchronize do
        @returned.wait(@lock) while @idle.empty? && @made >= @size
        @made += 1 if @idle.empty?
        @idle.pop
      end
    end

    def connect
      connection = @connect.call
    ensure
      forget unless connection
    end
  end
end
