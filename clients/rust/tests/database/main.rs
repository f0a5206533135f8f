//! Everything on a real database.

mod leased;
mod support;
mod transactional;
mod uncertain;
