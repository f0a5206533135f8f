// The library and the SQL objects are installed by different commands, so they may be of different
// versions: the one has been updated and the other not yet.
#pragma once

namespace idem::pg {

// An error if the SQL objects in this database are not of the library's version. Looks once, and
// again after the table of records has been touched by DDL, as each upgrade script does; for every
// call after that it is one test of a variable.
void check_version();

// Called once, when the library is loaded.
void watch_version_changes();

}  // namespace idem::pg
