//! The root of a virtual machine: one configuration of the filter, the pages or the service.

use std::cell::RefCell;
use std::rc::Rc;

use picker_core::{Eagerness, PERIOD_MAX, Role, Span, Timestamp, parse_config};
use proxy_wasm::traits::{Context, HttpContext, RootContext};
use proxy_wasm::types::ContextType;

use crate::collecting::Collecting;
use crate::host::{self, Buffer};
use crate::pages::Page;
use crate::stream::Stream;
use crate::waiting::FAST;
use crate::worker::Worker;

/// A root before and after its configuration.
#[derive(Default)]
pub(crate) struct Root {
    serves: Serves,
    collecting: Option<Collecting>,
    /// How often the host's timer is to go off for what is always due.
    period: Span,
    /// When that was done last.
    ticked_at: Timestamp,
    /// How often the timer goes off.
    timer: Span,
}

#[derive(Default)]
enum Serves {
    #[default]
    Nothing,
    Pages,
    Requests(Rc<RefCell<Worker>>),
}

impl Context for Root {
    /// The configuration is gone. Requests that wait under it would wait for ever.
    fn on_done(&mut self) -> bool {
        if let Serves::Requests(worker) = &self.serves {
            worker.borrow_mut().close(host::now());
        }
        true
    }

    fn on_http_call_response(&mut self, token: u32, headers: usize, body: usize, _: usize) {
        if let Some(collecting) = &mut self.collecting {
            collecting.on_answer(token, headers, body);
        }
    }
}

impl RootContext for Root {
    /// Reads the configuration and writes nothing: it also runs in a canary that is thrown away.
    fn on_configure(&mut self, size: usize) -> bool {
        host::set_up_log();
        let bytes = host::buffer(Buffer::PluginConfiguration, 0, size);
        let role = match parse_config(&bytes) {
            Ok(parsed) => parsed,
            Err(errors) => {
                let lines: Vec<String> = errors.iter().map(ToString::to_string).collect();
                // One line: it is all that Envoy keeps of why a configuration was refused.
                let message = format!("picker: configuration refused: {}", lines.join(" | "));
                host::log_critical(&message);
                return false;
            }
        };
        let ticks = !matches!(role, Role::Page);
        self.serves = match role {
            Role::Service => Serves::Nothing,
            Role::Page => Serves::Pages,
            Role::Filter(config) => {
                for warning in &config.warnings {
                    log::warn!("picker: {warning}");
                }
                Serves::Requests(Rc::new(RefCell::new(Worker::new(*config))))
            }
        };
        self.collecting = ticks.then(Collecting::new);
        (self.period, self.timer) = (PERIOD_MAX, PERIOD_MAX);
        if ticks && host::set_tick_period(PERIOD_MAX).is_err() {
            log::error!("picker: the host gives no timer, so no metrics are collected");
        }
        true
    }

    fn on_tick(&mut self) {
        let now = host::now();
        let mut is_fast = false;
        if let Serves::Requests(worker) = &self.serves {
            let mut worker = worker.borrow_mut();
            is_fast = worker.is_fast;
            if is_fast {
                worker.run_all_turns(now);
                worker.is_fast = worker.is_waiting();
            }
            self.timer = if is_fast { FAST } else { self.timer };
            is_fast &= worker.is_fast;
        }
        // A timer goes off late rather than early, by the length of one of its steps.
        if self.timer != FAST || now.after(FAST).apart(self.ticked_at) >= self.period {
            self.ticked_at = now;
            self.tick(now);
        }
        let timer = if is_fast { FAST } else { self.period };
        if timer != self.timer && host::set_tick_period(timer).is_ok() {
            self.timer = timer;
        }
    }

    fn on_queue_ready(&mut self, queue: u32) {
        while host::dequeue(queue).is_some() {}
        if let Serves::Requests(worker) = &self.serves {
            worker.borrow_mut().run_all_turns(host::now());
        }
    }

    fn get_type(&self) -> Option<ContextType> {
        Some(ContextType::HttpContext)
    }

    fn create_http_context(&self, context: u32) -> Option<Box<dyn HttpContext>> {
        match &self.serves {
            Serves::Requests(worker) => Some(Box::new(Stream::new(Rc::clone(worker), context))),
            Serves::Nothing | Serves::Pages => Some(Box::<Page>::default()),
        }
    }
}

impl Root {
    /// What is always due.
    fn tick(&mut self, now: Timestamp) {
        let eagerness = match &self.serves {
            Serves::Requests(worker) => {
                let mut worker = worker.borrow_mut();
                worker.tick(now);
                if worker.is_busy(now) {
                    Eagerness::Busy
                } else {
                    Eagerness::Idle
                }
            }
            Serves::Nothing | Serves::Pages => Eagerness::Service,
        };
        if let Some(collecting) = &mut self.collecting {
            self.period = collecting.tick(eagerness, now);
        }
    }
}
