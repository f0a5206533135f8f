//! Everything on a real database.

mod leased;
mod seams;
mod support;
mod transactional;
mod uncertain;
mod worker;
