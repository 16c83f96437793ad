//! Processes of holdpoint: their ends, several on one database, and a database that goes down.

mod crash;
mod outage;
mod replicas;
mod stopping;
