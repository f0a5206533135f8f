# frozen_string_literal: true

# The server of the conformance suite, on puma.

$LOAD_PATH.unshift(File.expand_path("../lib", __dir__))
require_relative(ENV["SERVER"] == "rails" ? "on_rails" : "on_rack")
require "puma"
require "puma/server"

trap("TERM") { exit!(0) }
# With epoll, puma's reactor overlooks requests on descriptors that an aborted upload has had before.
events = Puma::Events.respond_to?(:stdio) ? Puma::Events.stdio : Puma::Events.new # before and since puma 6
server = Puma::Server.new(APP, events, min_threads: 4, max_threads: 40, io_selector_backend: :poll)
server.add_tcp_listener("127.0.0.1", Integer(ENV.fetch("PORT")))
runs = server.run
$stdout.puts "ready"
$stdout.flush
runs.join
