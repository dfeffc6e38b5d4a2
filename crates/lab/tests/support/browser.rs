//! A headless Chromium, driven through chromedriver's WebDriver protocol.

use std::env;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use serde_json::{Value, json};
use tempfile::TempDir;

/// The key under which the protocol names an element.
const ELEMENT: &str = "element-6066-11e4-a52e-4f735466cecf";

/// One browser with one page.
pub(crate) struct Browser {
    driver: Child,
    port: u16,
    session: String,
    /// An empty profile, gone with the browser.
    _profile: TempDir,
}

/// Whether both programs are installed; says so where they are not.
pub(crate) fn is_installed() -> bool {
    let folders: Vec<_> =
        env::var_os("PATH").map(|path| env::split_paths(&path).collect()).unwrap_or_default();
    let found =
        |name: &str| folders.iter().any(|folder: &std::path::PathBuf| folder.join(name).is_file());
    for name in ["chromium", "chromedriver"] {
        if !found(name) {
            println!("skipped: {name} is not installed");
            return false;
        }
    }
    true
}

impl Browser {
    /// Starts one with a window of this size.
    pub(crate) fn start(width: u32, height: u32) -> Browser {
        let profile = tempfile::tempdir().expect("a folder");
        let mut driver = Command::new("chromedriver")
            .arg("--port=0")
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .expect("chromedriver starts");
        let mut said = BufReader::new(driver.stdout.take().expect("piped")).lines();
        // "ChromeDriver was started successfully on port 36183."
        let port = said
            .by_ref()
            .map_while(Result::ok)
            .find_map(|line| {
                line.split("started successfully on port ")
                    .nth(1)?
                    .trim_end_matches('.')
                    .parse::<u16>()
                    .ok()
            })
            .expect("chromedriver prints its port");
        // The rest of its output is dropped: reading it keeps the pipe from filling.
        std::thread::spawn(move || said.for_each(drop));
        let mut browser = Browser { driver, port, session: String::new(), _profile: profile };
        let profile = browser._profile.path().display().to_string();
        let arguments = [
            "--headless",
            "--no-sandbox",
            "--disable-gpu",
            "--disable-dev-shm-usage",
            "--disable-quic",
            "--no-first-run",
            "--disable-background-networking",
            "--disable-component-update",
            "--disable-sync",
            &format!("--user-data-dir={profile}"),
            &format!("--window-size={width},{height}"),
        ];
        let wanted = json!({"capabilities": {"alwaysMatch": {
            "goog:loggingPrefs": {"browser": "ALL"},
            "goog:chromeOptions": {"args": arguments},
        }}});
        let session = browser.ask("POST", "", Some(&wanted));
        browser.session = session["sessionId"].as_str().expect("a session").to_owned();
        browser
    }

    fn ask(&self, method: &str, path: &str, body: Option<&Value>) -> Value {
        let target = match self.session.as_str() {
            "" => "/session".to_owned(),
            session => format!("/session/{session}{path}"),
        };
        let body = body.map_or_else(String::new, Value::to_string);
        let address = format!("http://127.0.0.1:{}{target}", self.port);
        let request = ureq::http::Request::builder().method(method).uri(address);
        let request = request.header("Content-Type", "application/json").body(body);
        // An error has a body, which says what is wrong.
        let agent = ureq::Agent::config_builder()
            .http_status_as_error(false)
            .timeout_global(Some(Duration::from_secs(60)))
            .build()
            .new_agent();
        let mut answer = agent.run(request.expect("a request")).expect("chromedriver answers");
        let text = answer.body_mut().read_to_string().expect("text");
        let mut answer: Value = serde_json::from_str(&text).expect("JSON");
        let value = answer["value"].take();
        assert!(value.get("error").is_none(), "{method} {target}: {value}");
        value
    }

    /// Opens a file.
    pub(crate) fn open(&self, page: &Path) {
        self.ask("POST", "/url", Some(&json!({"url": format!("file://{}", page.display())})));
    }

    /// Clicks, as a person would, on the first element that a CSS selector finds.
    pub(crate) fn click(&self, selector: &str) {
        let wanted = json!({"using": "css selector", "value": selector});
        let found = self.ask("POST", "/element", Some(&wanted));
        let element = found[ELEMENT].as_str().expect("an element");
        self.ask("POST", &format!("/element/{element}/click"), Some(&json!({})));
    }

    /// Presses a key on whatever has the focus.
    pub(crate) fn press(&self, key: char) {
        let actions = ["keyDown", "keyUp"].map(|kind| json!({"type": kind, "value": key}));
        let keyboard = json!({"actions": [{"type": "key", "id": "keyboard", "actions": actions}]});
        self.ask("POST", "/actions", Some(&keyboard));
    }

    /// The value of a script's `return`.
    pub(crate) fn run(&self, script: &str) -> Value {
        self.ask("POST", "/execute/sync", Some(&json!({"script": script, "args": []})))
    }

    /// A command of Chromium's own debugging protocol.
    pub(crate) fn devtools(&self, command: &str, parameters: &Value) {
        let wanted = json!({"cmd": command, "params": parameters});
        self.ask("POST", "/goog/cdp/execute", Some(&wanted));
    }

    /// What the page has complained of since the last look.
    pub(crate) fn complaints(&self) -> Value {
        self.ask("POST", "/se/log", Some(&json!({"type": "browser"})))
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        // The browser ends with its session. A test that has failed already may find no driver.
        if !std::thread::panicking() {
            self.ask("DELETE", "", None);
        }
        let _ = self.driver.kill();
        let _ = self.driver.wait();
    }
}
