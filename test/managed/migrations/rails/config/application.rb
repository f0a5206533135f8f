require "rails"
require "active_record/railtie"

class Shop < Rails::Application
  config.load_defaults 6.1
  config.eager_load = false
  config.active_record.schema_format = ENV.fetch("SCHEMA_FORMAT").to_sym
  config.active_record.dump_schemas = :all
end
