# frozen_string_literal: true

require "helper"
require "fileutils"
require "open3"
require "tmpdir"

# The gem, in an empty folder without the checkout.
class PackageTest < Minitest::Test
  PROJECT = <<~RUBY
    require "idempotency-postgres"
    abort "not the gem's" unless $LOADED_FEATURES.grep(/idempotency-postgres\\.rb$/).first.start_with?(Gem.dir)
    Idempotency::Caller
    Idempotency::Exchange
    abort "Rails" if defined?(Rails) || defined?(ActiveRecord)
    print Gem.loaded_specs["idempotency-postgres"].version, Idempotency::Key.parse('"a"')
    Idempotency::Controller
    Idempotency::ActiveRecord
  RUBY

  def test_the_gem_in_an_empty_project
    Dir.mktmpdir do |folder|
      built = File.join(folder, "built.gem")
      run!("gem", "build", "idempotency-postgres.gemspec", "--strict", "--output", built, chdir: readable_sources(folder))
      run!("gem", "install", "--local", "--ignore-dependencies", "--no-document", "--install-dir", folder, built)
      said = run!({ "GEM_HOME" => folder, "RUBYLIB" => nil, "RUBYOPT" => nil }, "ruby", "-e", PROJECT, chdir: folder)
      assert_equal "1.0.0a", said
      files = Dir.glob("**/*", base: File.join(folder, "gems/idempotency-postgres-1.0.0")).grep_v(%r{^lib|/$})
      assert_equal %w[LICENSE README.md], files.sort
    end
  end

  # The files of a checkout may be its owner's alone, which "gem build" warns of.
  def readable_sources(folder)
    sources = File.join(folder, "sources")
    FileUtils.mkdir(sources)
    FileUtils.cp_r(%w[lib README.md LICENSE idempotency-postgres.gemspec].map { |name| File.expand_path("../#{name}", __dir__) }, sources)
    FileUtils.chmod_R("a+rX", sources)
    sources
  end

  def run!(*command, **options)
    said, complained, status = Open3.capture3(*command, **options)
    assert_predicate status, :success?, said + complained
    said
  end
end
