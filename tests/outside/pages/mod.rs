//! Pages of the documentation, on their development servers and in a browser.

mod assistant_ui;
mod dev_server;
mod reload;
mod sample_pages;
