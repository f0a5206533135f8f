# frozen_string_literal: true

module Idempotency
  # A connection of ruby-pg that sends several statements in one message, and its transaction.
  class Link
    # Every value goes and comes as text, and so do the names of columns.
    TEXTS = PG::TypeMapAllStrings.new
    CHECK = ["SELECT 1"].freeze

    attr_reader :connection, :rows
    alias client connection

    # `database`: it gets the connection back when its transaction has ended.
    def initialize(connection, database = nil)
      @connection = connection
      @database = database
    end

    # Begins the transaction, with a first statement if there is one.
    def open(first)
      @rows = begin_with(first)
      @waits = true
      opened = self
    ensure
      rollback unless opened
    end

    # One statement that is its own transaction.
    def alone(statement)
      together([statement])
    ensure
      rollback
    end

    # A COMMIT of a transaction that has failed succeeds by rolling it back.
    def commit(last)
      together([last, ["COMMIT"]])
      raise Error, "COMMIT has rolled back" unless @tag == "COMMIT"
    end

    # No answer waits for its ROLLBACK: the next user of the connection does.
    def nothing_done = (@waits = false)

    # Ends the transaction, whatever was before. The connection may then serve another request.
    def rollback
      sound = recovers?
      settle if @waits
      settled = sound
    ensure
      @waits = false
      @database.give_back(self, settled)
    end

    # The rows of the last statement that has some. None of them is run after one that has failed.
    def together(statements)
      settle
      raise Error, "a pipeline of the handler is still open" if pipeline?

      results = pipelined(statements).each(&:check)
      @tag = results.last.cmd_status
      rows = results.reverse.find { |result| result.result_status == PG::PGRES_TUPLES_OK }
      rows ? rows.map_types!(TEXTS).field_names_as(:string).to_a : []
    end

    # Raises the reason for which the connection is lost. The work may have sent a statement before it was interrupted.
    def check
      connection.get_last_result unless idle? || pipeline?
      together([CHECK])
    end

    # Whether the server has closed it: a look at what is unread, no round trip. While a statement runs, its answer
    # tells. Another thread may begin and end one meanwhile: at the second look it has read the answer.
    def gone?
      settle if @owes && !connection.tap(&:consume_input).is_busy # the end may be behind that answer
      idle? && 2.times.all? { closing? && idle? }
    rescue PG::Error, SystemCallError, IOError
      true
    end

    # Whether an error of the work is about this connection rather than about another one.
    def concerned?(error) = connection.equal?(Failures.of_pg(error)&.connection) || gone?

    def socket_io = connection.socket_io

    def finished? = connection.finished?

    def close = finished? || connection.finish

    private

    # BEGIN is in the same message.
    def begin_with(first) = together([["BEGIN"], first].compact)

    def pipeline? = connection.pipeline_status != PG::PQ_PIPELINE_OFF

    def idle? = connection.transaction_status != PG::PQTRANS_ACTIVE

    # What no statement has asked for is a notification, a notice or a setting, or else the last message, whose
    # encryption may hide what it is.
    def closing?
      !["A", "N", "S", :wait_readable].include?(socket_io.recv_nonblock(1, Socket::MSG_PEEK, exception: false))
    end

    # Whether another request can use it, after the ROLLBACK of an open transaction, which is sent without a wait.
    def recovers?
      return false if pipeline?

      if [PG::PQTRANS_INTRANS, PG::PQTRANS_INERROR].include?(connection.transaction_status)
        connection.send_query_params("ROLLBACK", [])
        connection.flush
        @owes = true
      end
      @owes || connection.transaction_status == PG::PQTRANS_IDLE
    rescue PG::Error
      false
    end

    # Reads the answer to that ROLLBACK.
    def settle
      connection.get_last_result if @owes
      @owes = false
    end

    def pipelined(statements)
      connection.enter_pipeline_mode
      statements.each { |sql, values = []| connection.send_query_params(sql, values, 0, TEXTS) }
      send_all
      answers.tap { connection.exit_pipeline_mode }
    end

    # Sending to a server that has gone raises no class of its own.
    def send_all
      connection.pipeline_sync
    rescue PG::Error => error
      raise PG::ConnectionBad, error.message
    end

    # Each statement's result is followed by nil, all of them by that of the Sync.
    def answers
      results = []
      until results.last&.result_status == PG::PGRES_PIPELINE_SYNC
        results << (connection.get_result || connection.get_result || raise(PG::ConnectionBad, "connection lost"))
      end
      results[..-2]
    rescue PG::ConnectionBad
      results.each(&:check) # the server's last message has the reason
      raise
    end
  end
end
