# frozen_string_literal: true

require "openssl"

# The server's end of TLS, in front of the tests' server, which has none.
class Tls
  attr_reader :port, :ended

  def initialize
    key = OpenSSL::PKey::RSA.new(2048)
    @context = OpenSSL::SSL::SSLContext.new
    @context.add_certificate(certificate(key), key)
    @ended = Queue.new
    listener = TCPServer.new("127.0.0.1", 0)
    @port = listener.addr[1]
    Thread.new { loop { Thread.new(listener.accept) { |socket| serve(socket) } } }
  end

  private

  def certificate(key)
    OpenSSL::X509::Certificate.new.tap do |one|
      one.subject = one.issuer = OpenSSL::X509::Name.parse("/CN=localhost")
      one.not_before = Time.now - 3600
      one.not_after = Time.now + 86_400
      one.public_key = key
      one.sign(key, "SHA256")
    end
  end

  # Until the server ends the session.
  def serve(socket)
    socket.read(8) # SSLRequest
    socket.write("S")
    client = OpenSSL::SSL::SSLSocket.new(socket, @context).accept
    client.sync_close = true
    server = TCPSocket.new(ENV.fetch("PGHOST", "127.0.0.1"), ENV.fetch("PGPORT", "5432"))
    sending = Thread.new { copy(client, server) }
    copy(server, client)
    client.close
    @ended << true
    sending.kill
  end

  def copy(from, to)
    loop { to.write(from.readpartial(65_536)) }
  rescue IOError, SystemCallError, OpenSSL::SSL::SSLError
    nil
  end
end
